"""The numpy types of the records that the C core hands out as buffers."""

import numpy as np

__all__ = ["PROGRAM_EVENT", "STAT_ROW", "TRACE_EVENT"]

TRACE_EVENT = np.dtype(
    [
        ("time_ns", np.int64),
        ("ptr", np.uint64),
        ("bytes_req", np.uint32),
        ("bytes_alloc", np.uint32),
        ("call_site", np.uint32),
        ("cache", np.uint16),
        ("gfp", np.uint16),
        ("task", np.uint16),
        ("cpu", np.uint16),
        ("node", np.int16),
        ("kind", np.uint8),
        ("flags", np.uint8),
    ]
)
"""One kmem event, 40 bytes (``struct sq_trace_event``)."""

STAT_ROW = np.dtype(
    [
        ("ptr", np.uint64),
        ("hit", np.uint64),
        ("bytes_req", np.uint64),
        ("bytes_alloc", np.uint64),
        ("pingpong", np.uint64),
        ("last_alloc", np.uint64),
        ("call_site", np.uint32),
        ("alloc_cpu", np.int32),
    ]
)
"""One row of the figures of ``perf kmem stat`` (``struct sq_stat_row``)."""

PROGRAM_EVENT = np.dtype([("object", np.uint32), ("code", np.uint32)])
"""One event of a replay (``struct sq_program_event``)."""
