"""Lines of kernel traces, as the tests of the trace reader write them."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slabq import _core
from slabq.trace import ACCOUNTED, HASHED, Trace

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SLABQ_SHARED", ROOT.parent / "shared")) / "traces"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/traces/{name} is not there")
    return SHARED / name


def parse(text: str | bytes, *, allow_truncated: bool = False, block: int = 0) -> Trace:
    data = text.encode() if isinstance(text, str) else text
    core = _core.Trace("sample")
    step = block or max(len(data), 1)
    for at in range(0, len(data), step):
        core.feed(data[at : at + step])
    core.finish(allow_truncated)
    return Trace(core)


def perf(fields: str, *, time: str = "1.000001", cpu: int = 0, comm: str = "t") -> str:
    return f"{comm:>16} {7:7} [{cpu:03}] {time:>12}: kmem:{fields}\n"


def alloc(ptr: int, size: int = 32, *, cpu: int = 0, name: str = "") -> str:
    if name:
        head = f"kmem_cache_alloc: call_site=f+0x1 ptr={ptr:#x} name={name}"
    else:
        head = f"kmalloc: call_site=g+0x2 ptr={ptr:#x}"
    tail = f" bytes_req={size} bytes_alloc={size} gfp_flags=GFP_KERNEL node=-1"
    return perf(head + tail, cpu=cpu)


def free(ptr: int, *, cpu: int = 0) -> str:
    return perf(f"kfree: call_site=h+0x3 ptr={ptr:#x}", cpu=cpu)


GOOD = alloc(0xFFFF888000001000, 100, name="filp") + free(0xFFFF888000001000)


@dataclass(frozen=True)
class Form:
    line: str
    expected: dict[str, object]
    texts: dict[str, str] = field(default_factory=dict)


MS = 1_000_000
FORMS = {
    "2.6.31 ftrace kmalloc": Form(
        "            bash-1234  [003]  1234.567890: kmalloc: "
        "call_site=ffffffff8110f2d3 ptr=ffff88003d8a1c00 bytes_req=100 "
        "bytes_alloc=128 gfp_flags=GFP_KERNEL\n",
        {
            "kind": "kmalloc",
            "cpu": 3,
            "time_ns": 1234_567890_000,
            "ptr": 0xFFFF88003D8A1C00,
            "bytes_req": 100,
            "bytes_alloc": 128,
            "node": -1,
        },
        {"call_site": "ffffffff8110f2d3", "gfp": "GFP_KERNEL", "task": "bash-1234"},
    ),
    "2.6.35 perf trace with node": Form(
        "            perf-99    [001]     5.000007: kmem_cache_alloc_node: "
        "call_site=c04b1234 ptr=f6a01000 bytes_req=200 bytes_alloc=256 "
        "gfp_flags=GFP_ATOMIC|GFP_ZERO node=1\n",
        {"kind": "kmem_cache_alloc_node", "node": 1, "ptr": 0xF6A01000, "flags": 0},
        {"gfp": "GFP_ATOMIC|GFP_ZERO", "task": "perf-99", "call_site": "c04b1234"},
    ),
    "2.6.35 kmalloc_node without a node asked for": Form(
        "            perf-99    [001]     5.000007: kmalloc_node: call_site=c04b1234 "
        "ptr=f6a01000 bytes_req=200 bytes_alloc=256 gfp_flags=GFP_ATOMIC node=-1\n",
        {"kind": "kmalloc_node", "node": -1},
    ),
    "4.19 ftrace with four flags": Form(
        "     kworker/0:1-21    [000] d.h2    77.123456: kfree: "
        "call_site=ffffffffa03b2f11 ptr=ffff9a8f1c2d3e00\n",
        {"kind": "kfree", "cpu": 0, "ptr": 0xFFFF9A8F1C2D3E00, "bytes_req": 0},
        {"task": "kworker/0:1-21"},
    ),
    "5.15 free with a name and a module's call site": Form(
        "          <idle>-0       [002] ..s1   100.000001: kmem_cache_free: "
        "call_site=kfree_skbmem+0x8d/0xa0 [veth] ptr=00000000d01d5e71 "
        "name=skbuff_head_cache\n",
        {"kind": "kmem_cache_free", "ptr": 0xD01D5E71, "flags": HASHED, "cpu": 2},
        {
            "call_site": "kfree_skbmem+0x8d/0xa0 [veth]",
            "cache": "skbuff_head_cache",
            "task": "<idle>-0",
        },
    ),
    "6.1 perf script": Form(
        "            perf 15852 [000]   581.337297:          kmem:kmalloc: "
        "call_site=sched_setaffinity+0x10c ptr=0xffff8881044406c0 bytes_req=32 "
        "bytes_alloc=32 gfp_flags=GFP_KERNEL node=-1 accounted=true\n",
        {"kind": "kmalloc", "time_ns": 581_337297_000, "flags": ACCOUNTED},
        {"task": "perf-15852", "call_site": "sched_setaffinity+0x10c"},
    ),
    "6.18 ftrace with tgid and name": Form(
        "            bash-27279   (  27279) [001] .n...   628.552363: "
        "kmem_cache_alloc: call_site=alloc_empty_file+0x3c/0x110 "
        "ptr=ffff888012345678 name=filp "
        "bytes_req=184 bytes_alloc=192 gfp_flags=GFP_KERNEL node=0 accounted=false\n",
        {"kind": "kmem_cache_alloc", "bytes_req": 184, "node": 0, "flags": 0},
        {"cache": "filp", "task": "bash-27279"},
    ),
    "trace-cmd report": Form(
        "        sshd-4711    [005]   42.000000123: kmalloc:              "
        "call_site=__alloc_skb+0x147 ptr=0xffff888012345600 bytes_req=704 "
        "bytes_alloc=1024 gfp_flags=GFP_ATOMIC node=-1 accounted=false\n",
        {"kind": "kmalloc", "time_ns": 42_000000123, "cpu": 5},
        {"task": "sshd-4711"},
    ),
    "a clock that counts no time": Form(
        "            bash-1     [000] .....        987654321: kfree: "
        "call_site=f+0x1/0x2 ptr=ffff888012345678\n",
        {"time_ns": 987654321},
    ),
    "perf with pid and tid": Form(
        "            perf    12/13    [000]     1.5: kmem:kfree: call_site=f+0x1 "
        "ptr=0xffff888012345678\n",
        {"time_ns": 1500 * MS},
        {"task": "perf-13"},
    ),
    "a command with spaces, brackets and an event's name": Form(
        " 1 [0] 1: kfree:     9 [004]     2.000000: kmem:kfree: call_site=f+0x1 "
        "ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10},
        {"task": "1 [0] 1: kfree:-9"},
    ),
    "a task without a name": Form(
        "                 123 [004]     2.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10},
        {"task": "-123"},
    ),
    "no task at all": Form(
        "[004]     2.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10, "task": 65535},
    ),
    "the name field behind all others": Form(
        perf(
            "kmem_cache_alloc: bytes_alloc=64 bytes_req=60 node=3 ptr=0x40 "
            "call_site=f+0x1 new_field=7 name=TCP (old v2)"
        ),
        {"bytes_req": 60, "bytes_alloc": 64, "node": 3, "ptr": 0x40},
        {"cache": "TCP (old v2)", "call_site": "f+0x1"},
    ),
    "a nil pointer of perf": Form(
        perf("kfree: call_site=f+0x1 ptr=(nil)"), {"ptr": 0}, {"task": "t-7"}
    ),
    "a nil pointer of an old kernel": Form(
        perf("kfree: call_site=f+0x1 ptr=(null)"), {"ptr": 0}
    ),
    "a line that ends as under DOS": Form(
        perf("kfree: call_site=f+0x1 ptr=0xffff888000000040")[:-1] + "\r\n",
        {"ptr": 0xFFFF888000000040},
    ),
}
