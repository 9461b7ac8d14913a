/* The operations of a load file, as tbench takes them in its `argument`. */
#ifndef SQ_TBENCH_H
#define SQ_TBENCH_H

#include <stdint.h>

/* Bytes of one request and of its response. */
struct tbench_step {
    uint32_t request_bytes, response_bytes;
};

struct tbench_script {
    uint64_t count;
    struct tbench_step step[];
};

#endif
