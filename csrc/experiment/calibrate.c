/* Pointer chases, atomic instructions, lines between CPUs, a lock handed over. */
#include "experiment/calibrate.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/sq_rng.h"

#define LINE_BYTES     64u
#define WINDOWS_MAX    512u
#define BUDGET_NS      UINT64_C(400000000) /* for the windows of one figure */
#define CHASE_STEPS    2048u               /* of one window */
#define CHAIN_STEPS    2000u
#define SHARED_LINES   256u /* of one window; they fit every L1 */
#define LINE_STRIDE    37u  /* prime to their number: no prefetcher follows */
#define LOCK_ROUNDS    64u
#define HELD_STEPS     400u  /* of work under the lock: others are in line meanwhile */
#define SPINS          2000u /* polls of a flag before the host CPU is given away */
#define LOW_PERCENT    10u   /* of the windows: what disturbs only adds time */
#define MIDDLE_PERCENT 50u   /* where it may take lines away from the other CPU, too */

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- windows ---- */

/* The times of many windows, each in ns for one step. */
struct windows {
    double ns[WINDOWS_MAX];
    size_t count;
    uint64_t until_ns;
};

static void windows_begin(struct windows *windows)
{
    windows->count = 0;
    windows->until_ns = clock_ns() + BUDGET_NS;
}

/* Is there room, and time, for another? At least a few are taken however long it takes.
 */
static bool windows_want(const struct windows *windows)
{
    return windows->count < WINDOWS_MAX &&
           (windows->count < 3 || clock_ns() < windows->until_ns);
}

static void windows_add(struct windows *windows, uint64_t ns, size_t steps)
{
    windows->ns[windows->count++] = (double)ns / (double)steps;
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A percentile; -1 without windows. */
static double windows_figure(struct windows *windows, uint32_t percent)
{
    if (windows->count == 0)
        return -1.0;
    qsort(windows->ns, windows->count, sizeof(windows->ns[0]), compare_reals);
    return windows->ns[windows->count * percent / 100];
}

/* ---- threads ---- */

/* Start `main` pinned to a CPU. 0 or SQ_E_SYSTEM. */
static int thread_start(pthread_t *thread, uint32_t cpu, void *(*main)(void *),
                        void *argument, struct sq_error *error)
{
    pthread_attr_t attributes;
    cpu_set_t set;
    int failure = pthread_attr_init(&attributes);
    if (failure != 0)
        return sq_error_set(error, SQ_E_SYSTEM, "no thread: %s", strerror(failure));
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE)
        CPU_SET(cpu, &set);
    failure = pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
    if (failure == 0)
        failure = pthread_create(thread, &attributes, main, argument);
    (void)pthread_attr_destroy(&attributes);
    if (failure != 0)
        return sq_error_set(error, SQ_E_SYSTEM,
                            "no thread on CPU %u (%s): accepted are CPUs that this "
                            "process may use",
                            cpu, strerror(failure));
    return SQ_OK;
}

/* Run `main` on a CPU and wait for its end. */
static int thread_run(uint32_t cpu, void *(*main)(void *), void *argument,
                      struct sq_error *error)
{
    pthread_t thread;
    int code = thread_start(&thread, cpu, main, argument, error);
    if (code == SQ_OK)
        (void)pthread_join(thread, NULL);
    return code;
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Wait until a flag has a value; give the host CPU away if that takes long. */
static void flag_wait(_Atomic uint32_t *flag, uint32_t value)
{
    for (uint32_t i = 0; atomic_load_explicit(flag, memory_order_acquire) != value;
         i++) {
        cpu_relax();
        if (i % SPINS == SPINS - 1)
            (void)sched_yield();
    }
}

/* ---- chase ---- */

struct line {
    _Alignas(LINE_BYTES) struct line *next;
    uint64_t word; /* by atomic instructions */
    char rest[LINE_BYTES - 16];
};
_Static_assert(sizeof(struct line) == LINE_BYTES, "one line");

struct chase {
    struct line *lines;
    size_t count;
    bool is_in_order;
    uint32_t *order; /* scratch: a line may be anywhere, 2^32 of them at most */
    struct windows windows;
    struct line *end; /* keeps the loads from being left out */
};

/* One cycle through all lines; first touch puts the memory on this CPU's node. */
static void *chase_link(void *argument)
{
    struct chase *chase = argument;
    struct sq_rng rng;
    sq_rng_seed(&rng, 1);
    for (size_t i = 0; i < chase->count; i++)
        chase->order[i] = (uint32_t)i;
    for (size_t i = chase->count - 1; !chase->is_in_order && i > 0; i--) {
        size_t other = (size_t)sq_rng_below(&rng, (uint32_t)i);
        uint32_t line = chase->order[i];
        chase->order[i] = chase->order[other];
        chase->order[other] = line;
    }
    for (size_t i = 0; i < chase->count; i++)
        chase->lines[chase->order[i]].next =
            &chase->lines[chase->order[(i + 1) % chase->count]];
    return NULL;
}

static struct line *chase_steps(struct line *line, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        line = line->next;
        __asm__ volatile("" : "+r"(line));
    }
    return line;
}

/* Twice around unmeasured, or what a second allows; then window after window goes on.
 */
static void *chase_main(void *argument)
{
    struct chase *chase = argument;
    struct line *line = chase->lines;
    uint64_t warm_until_ns = clock_ns() + BUDGET_NS;
    for (size_t done = 0; done < 2 * chase->count && clock_ns() < warm_until_ns;
         done += CHASE_STEPS)
        line = chase_steps(line, CHASE_STEPS);
    windows_begin(&chase->windows);
    while (windows_want(&chase->windows)) {
        uint64_t start_ns = clock_ns();
        line = chase_steps(line, CHASE_STEPS);
        windows_add(&chase->windows, clock_ns() - start_ns, CHASE_STEPS);
    }
    chase->end = line;
    return NULL;
}

int sq_calibrate_chase(uint64_t bytes, bool is_in_order, uint32_t cpu, uint32_t home,
                       double *ns, struct sq_error *error)
{
    struct chase *chase = calloc(1, sizeof(*chase));
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int code = SQ_OK;
    if (chase != NULL) {
        chase->count = (size_t)(bytes / LINE_BYTES);
        chase->is_in_order = is_in_order;
        chase->order = calloc(chase->count, sizeof(uint32_t));
    }
    if (chase == NULL || memory == MAP_FAILED || chase->order == NULL) {
        code = sq_error_set(error, SQ_E_MEMORY,
                            "the host has no memory for a chase of %llu bytes",
                            (unsigned long long)bytes);
    } else {
        (void)madvise(memory, bytes,
                      MADV_HUGEPAGE); /* fewer TLB misses, where it helps */
        chase->lines = memory;
        code = thread_run(home, chase_link, chase, error);
        if (code == SQ_OK)
            code = thread_run(cpu, chase_main, chase, error);
        if (code == SQ_OK)
            *ns = windows_figure(&chase->windows, LOW_PERCENT);
    }
    if (memory != MAP_FAILED)
        (void)munmap(memory, bytes);
    if (chase != NULL)
        free(chase->order);
    free(chase);
    return code;
}

/* ---- instructions of one CPU ---- */

struct double_word {
    _Alignas(16) uint64_t first;
    uint64_t second;
};

/* Compare and exchange of 16 bytes with what is there; false: there is no such thing.
 */
static bool cas_double(struct double_word *word, bool is_locked)
{
#if defined(__x86_64__)
    uint64_t low = word->first, high = word->second;
    if (is_locked)
        __asm__ volatile("lock cmpxchg16b %0"
                         : "+m"(*word), "+a"(low), "+d"(high)
                         : "b"(low), "c"(high)
                         : "cc", "memory");
    else
        __asm__ volatile("cmpxchg16b %0"
                         : "+m"(*word), "+a"(low), "+d"(high)
                         : "b"(low), "c"(high)
                         : "cc", "memory");
    return true;
#else
    (void)word;
    (void)is_locked;
    return false;
#endif
}

struct single {
    struct sq_calibrate_single *figures;
    struct double_word wide;
    _Atomic uint64_t word;
    _Atomic uint32_t lock;
    uint32_t product; /* keeps the multiplications from being left out */
};

static void chain_multiply(struct single *single)
{
    uint32_t value = single->product | 1u;
    for (uint32_t i = 0; i < CHAIN_STEPS; i++) {
        value *= 2654435761u;
        __asm__ volatile("" : "+r"(value));
    }
    single->product = value;
}

static void chain_cas(struct single *single)
{
    uint64_t expected = atomic_load(&single->word);
    for (uint32_t i = 0; i < CHAIN_STEPS; i++)
        (void)atomic_compare_exchange_strong(&single->word, &expected, expected);
}

static void chain_cas_double(struct single *single)
{
    for (uint32_t i = 0; i < CHAIN_STEPS; i++)
        (void)cas_double(&single->wide, true);
}

static void chain_local_cas(struct single *single)
{
    for (uint32_t i = 0; i < CHAIN_STEPS; i++)
        (void)cas_double(&single->wide, false);
}

static void chain_exchange(struct single *single)
{
    for (uint32_t i = 0; i < CHAIN_STEPS; i++)
        (void)atomic_exchange_explicit(&single->lock, 1, memory_order_acquire);
}

static void chain_lock_pair(struct single *single)
{
    for (uint32_t i = 0; i < CHAIN_STEPS; i++) {
        (void)atomic_exchange_explicit(&single->lock, 1, memory_order_acquire);
        atomic_store_explicit(&single->lock, 0, memory_order_release);
    }
}

static double chain_figure(struct single *single, void (*chain)(struct single *))
{
    struct windows windows;
    chain(single);
    windows_begin(&windows);
    while (windows_want(&windows)) {
        uint64_t start_ns = clock_ns();
        chain(single);
        windows_add(&windows, clock_ns() - start_ns, CHAIN_STEPS);
    }
    return windows_figure(&windows, LOW_PERCENT);
}

static void *single_main(void *argument)
{
    struct single *single = argument;
    bool has_double = cas_double(&single->wide, false);
    single->figures->multiply = chain_figure(single, chain_multiply);
    single->figures->cas = chain_figure(single, chain_cas);
    single->figures->cas_double =
        has_double ? chain_figure(single, chain_cas_double) : 0.0;
    single->figures->local_cas =
        has_double ? chain_figure(single, chain_local_cas) : 0.0;
    single->figures->exchange = chain_figure(single, chain_exchange);
    single->figures->lock_pair = chain_figure(single, chain_lock_pair);
    return NULL;
}

int sq_calibrate_one(uint32_t cpu, struct sq_calibrate_single *figures,
                     struct sq_error *error)
{
    struct single single = {.figures = figures};
    return thread_run(cpu, single_main, &single, error);
}

/* ---- lines between two CPUs ---- */

/* What the other CPU does to the lines before a window. */
enum prepare { PREPARE_CHANGE, PREPARE_SHARE, PREPARE_NOTHING, PREPARE_END };

struct pair {
    struct line *lines;
    enum prepare prepare;                       /* published by `turn` */
    _Alignas(LINE_BYTES) _Atomic uint32_t turn; /* 0: the timed CPU's, 1: the other's */
    struct sq_calibrate_pair *figures;
    struct windows windows;
};

static void lines_link(struct line *lines)
{
    for (uint32_t i = 0; i < SHARED_LINES; i++)
        lines[i].next = &lines[(i + LINE_STRIDE) % SHARED_LINES];
}

static void lines_change(struct line *lines)
{
    for (uint32_t i = 0; i < SHARED_LINES; i++)
        (void)__atomic_fetch_add(&lines[i].word, 1, __ATOMIC_RELAXED);
}

static void lines_read(struct line *lines)
{
    struct line *end = chase_steps(lines, SHARED_LINES);
    __asm__ volatile("" : : "r"(end));
}

/* In the order of the links. Which line is next depends on what was found, by nothing,
 * so that no line is asked for before its turn. */
static void lines_cas(struct line *lines)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < SHARED_LINES; i++) {
        uint64_t found = __sync_val_compare_and_swap(&lines[at].word, 0, 1);
        at = (at + LINE_STRIDE + (found >> 63)) % SHARED_LINES;
    }
}

static void lines_store(struct line *lines)
{
    for (uint32_t i = 0; i < SHARED_LINES; i++)
        __atomic_store_n(&lines[i * LINE_STRIDE % SHARED_LINES].word, i,
                         __ATOMIC_RELAXED);
}

static void *pair_other(void *argument)
{
    struct pair *pair = argument;
    for (;;) {
        flag_wait(&pair->turn, 1);
        if (pair->prepare == PREPARE_END)
            return NULL;
        if (pair->prepare == PREPARE_CHANGE)
            lines_change(pair->lines);
        else if (pair->prepare == PREPARE_SHARE)
            lines_read(pair->lines);
        atomic_store_explicit(&pair->turn, 0, memory_order_release);
    }
}

static void pair_hand_over(struct pair *pair, enum prepare prepare)
{
    pair->prepare = prepare;
    atomic_store_explicit(&pair->turn, 1, memory_order_release);
    if (prepare != PREPARE_END)
        flag_wait(&pair->turn, 0);
}

/* `action` on lines that the other CPU has prepared; both have read shared ones. */
static double pair_figure(struct pair *pair, enum prepare prepare,
                          void (*action)(struct line *))
{
    windows_begin(&pair->windows);
    while (windows_want(&pair->windows)) {
        uint64_t start_ns;
        if (prepare != PREPARE_CHANGE)
            lines_change(pair->lines);
        if (prepare != PREPARE_NOTHING)
            pair_hand_over(pair, prepare);
        if (prepare == PREPARE_SHARE)
            lines_read(pair->lines);
        start_ns = clock_ns();
        action(pair->lines);
        windows_add(&pair->windows, clock_ns() - start_ns, SHARED_LINES);
    }
    return windows_figure(&pair->windows, MIDDLE_PERCENT);
}

static void *pair_timed(void *argument)
{
    struct pair *pair = argument;
    struct sq_calibrate_pair *figures = pair->figures;
    figures->read_changed = pair_figure(pair, PREPARE_CHANGE, lines_read);
    figures->cas_changed = pair_figure(pair, PREPARE_CHANGE, lines_cas);
    figures->cas_shared = pair_figure(pair, PREPARE_SHARE, lines_cas);
    figures->cas_own = pair_figure(pair, PREPARE_NOTHING, lines_cas);
    figures->store_changed = pair_figure(pair, PREPARE_CHANGE, lines_store);
    figures->store_own = pair_figure(pair, PREPARE_NOTHING, lines_store);
    return NULL;
}

int sq_calibrate_two(uint32_t cpu, uint32_t other, struct sq_calibrate_pair *figures,
                     struct sq_error *error)
{
    struct pair *pair = aligned_alloc(LINE_BYTES, sizeof(*pair));
    struct line *lines = aligned_alloc(LINE_BYTES, sizeof(*lines) * SHARED_LINES);
    pthread_t thread;
    int code = SQ_OK;
    if (pair == NULL || lines == NULL)
        code = sq_error_set(error, SQ_E_MEMORY, "the host has no memory to measure in");
    if (code == SQ_OK) {
        memset(pair, 0, sizeof(*pair));
        memset(lines, 0, sizeof(*lines) * SHARED_LINES);
        lines_link(lines);
        pair->lines = lines;
        pair->figures = figures;
        code = thread_start(&thread, other, pair_other, pair, error);
    }
    if (code == SQ_OK) {
        code = thread_run(cpu, pair_timed, pair, error);
        pair_hand_over(pair, PREPARE_END);
        (void)pthread_join(thread, NULL);
    }
    free(lines);
    free(pair);
    return code;
}

/* ---- a lock handed over ---- */

struct contest {
    _Alignas(LINE_BYTES) _Atomic uint32_t next; /* the ticket lock: one line */
    _Atomic uint32_t serving;
    _Alignas(LINE_BYTES) uint32_t last_holder;      /* under the lock */
    _Alignas(LINE_BYTES) _Atomic uint32_t is_begun; /* the others join in */
    _Atomic uint32_t is_over;
    double handover_ns;
    struct windows windows; /* the first locker's */
};

struct locker {
    struct contest *contest;
    uint32_t number; /* from 1 */
};

/* Take and release the lock. True: somebody else had it since this locker. */
static bool contest_round(struct contest *contest, uint32_t number)
{
    uint32_t ticket =
        atomic_fetch_add_explicit(&contest->next, 1, memory_order_relaxed);
    uint32_t work = number;
    bool is_handed;
    flag_wait(&contest->serving, ticket);
    is_handed = contest->last_holder != number;
    contest->last_holder = number;
    for (uint32_t i = 0; i < HELD_STEPS; i++) {
        work *= 2654435761u;
        __asm__ volatile("" : "+r"(work));
    }
    atomic_store_explicit(&contest->serving, ticket + 1, memory_order_release);
    return is_handed;
}

static void *contest_other(void *argument)
{
    struct locker *locker = argument;
    flag_wait(&locker->contest->is_begun, 1);
    while (atomic_load_explicit(&locker->contest->is_over, memory_order_relaxed) == 0)
        (void)contest_round(locker->contest, locker->number);
    return NULL;
}

/* The time of a round without others: the lock, the work, no hand-over. */
static double contest_alone(struct locker *locker, struct contest *contest)
{
    windows_begin(&contest->windows);
    while (windows_want(&contest->windows)) {
        uint64_t start_ns = clock_ns();
        for (uint32_t i = 0; i < LOCK_ROUNDS; i++)
            (void)contest_round(contest, locker->number);
        windows_add(&contest->windows, clock_ns() - start_ns, LOCK_ROUNDS);
    }
    return windows_figure(&contest->windows, LOW_PERCENT);
}

/* Windows in which the lock came from another CPU each time; others tell nothing. */
static double contest_shared(struct locker *locker, struct contest *contest)
{
    uint64_t until_ns = clock_ns() + 4 * BUDGET_NS;
    windows_begin(&contest->windows);
    while (contest->windows.count < WINDOWS_MAX && clock_ns() < until_ns) {
        uint64_t start_ns = clock_ns();
        uint32_t first = atomic_load_explicit(&contest->serving, memory_order_relaxed);
        uint32_t handed = 0, served;
        for (uint32_t i = 0; i < LOCK_ROUNDS; i++)
            handed += contest_round(contest, locker->number);
        served = atomic_load_explicit(&contest->serving, memory_order_relaxed) - first;
        if (handed == LOCK_ROUNDS)
            windows_add(&contest->windows, clock_ns() - start_ns, served);
    }
    return windows_figure(&contest->windows, LOW_PERCENT);
}

static void *contest_first(void *argument)
{
    struct locker *locker = argument;
    struct contest *contest = locker->contest;
    double alone_ns = contest_alone(locker, contest), shared_ns;
    atomic_store_explicit(&contest->is_begun, 1, memory_order_release);
    shared_ns = contest_shared(locker, contest);
    contest->handover_ns = shared_ns < 0 ? -1.0 : shared_ns - alone_ns;
    atomic_store_explicit(&contest->is_over, 1, memory_order_relaxed);
    return NULL;
}

int sq_calibrate_lock(const uint32_t *cpus, size_t count, double *ns,
                      struct sq_error *error)
{
    struct contest *contest = aligned_alloc(LINE_BYTES, sizeof(*contest));
    struct locker lockers[SQ_CALIBRATE_LOCKERS_MAX];
    pthread_t threads[SQ_CALIBRATE_LOCKERS_MAX];
    size_t started = 1;
    int code = SQ_OK;
    if (contest == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory to measure in");
    memset(contest, 0, sizeof(*contest));
    for (size_t i = 0; i < count; i++)
        lockers[i] = (struct locker){contest, (uint32_t)i + 1};
    for (; code == SQ_OK && started < count; started += code == SQ_OK)
        code = thread_start(&threads[started], cpus[started], contest_other,
                            &lockers[started], error);
    if (code == SQ_OK)
        code = thread_run(cpus[0], contest_first, &lockers[0], error);
    atomic_store(&contest->is_over, 1);
    atomic_store(&contest->is_begun, 1);
    for (size_t i = 1; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    if (code == SQ_OK)
        *ns = contest->handover_ns;
    free(contest);
    return code;
}
