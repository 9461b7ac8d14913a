"""Each workload allocates and frees what the kernel's own does, and nothing stays."""

import importlib.util
import json
from pathlib import Path

import cffi
import pytest
import sim_build

import slabq
from slabq import _core
from slabq.cli import main
from slabq.loadfile import read_loadfile, step_of_line
from slabq.workload import workload_kinds

POLICIES = _core.policies()
CSRC = Path(__file__).resolve().parent.parent / "csrc"
SMP = slabq.Machine(cpus=2)
NUMA = slabq.Machine(cpus=2, nodes=2)

pytestmark = pytest.mark.threads


def run(workload, *, policy="slab", machine=SMP, **parameters):
    return slabq.run(
        workload, policy=policy, machine=machine, progress=False, **parameters
    )


def settle(result):
    sample = result.sample
    return sample["allocations"], sample["frees"], sample["live"]


def all_of(count):
    """`count` allocations, as many frees, and nothing left."""
    return count, count, 0


# -- packets ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def skb_sizes(tmp_path_factory):
    """The function of skb.h that knows the sizes, called from Python."""
    ffi = cffi.FFI()
    ffi.cdef("void sizes(int64_t release, bool fixed, uint32_t *out);")
    body = """
        #include "workload/skb.h"
        static void sizes(int64_t release, bool fixed, uint32_t *out)
        {
            struct skb_sizes s = skb_sizes_of(release, fixed);
            out[0] = s.buff_bytes; out[1] = s.fclone_bytes; out[2] = s.send_bytes;
            out[3] = s.ack_bytes; out[4] = s.has_small_head;
        }
    """
    folders = [str(CSRC), str(CSRC / "include")]
    ffi.set_source("_skb_sizes", body, include_dirs=folders)
    path = ffi.compile(tmpdir=str(tmp_path_factory.mktemp("skb")))
    spec = importlib.util.spec_from_file_location("_skb_sizes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def sizes(release, fixed=False):
        out = module.ffi.new("uint32_t[5]")
        module.lib.sizes(release, fixed, out)
        return tuple(out)

    return sizes


@pytest.mark.parametrize(
    ("release", "fixed", "send_bytes"),
    [
        (20624, False, 4088),  # before deea84b0ae3d
        (20624, True, 4152),  # with it: beyond a page
        (20627, False, 568),  # a header of 208 and 312 of shared info
        (20635, False, 600),  # 344
        (30200, False, 576),  # 320
    ],
)
def test_the_head_of_a_data_segment_is_what_the_release_asks_for(
    skb_sizes, release, fixed, send_bytes
):
    assert skb_sizes(release, fixed)[2] == send_bytes


@pytest.mark.parametrize(
    ("release", "slot"), [(20624, 448), (20635, 512), (30200, 512), (61800, 512)]
)
def test_a_pair_of_sk_buffs_takes_the_slot_of_its_release(skb_sizes, release, slot):
    fclone_bytes = skb_sizes(release)[1]

    assert (fclone_bytes + 63) // 64 * 64 == slot


@pytest.mark.parametrize(("release", "own_cache"), [(60200, 0), (60300, 1), (61800, 1)])
def test_heads_have_a_cache_of_their_own_from_6_3_on(skb_sizes, release, own_cache):
    assert skb_sizes(release)[4] == own_cache


# -- tcp_rr ----------------------------------------------------------------------------

PLACEMENTS = [
    {"placement": "localhost"},
    {"placement": "client-server", "side": "client", "delay_ns": 1000},
    {"placement": "client-server", "side": "server", "delay_ns": 1000},
    {"placement": "client-server", "irq_cpu": -1, "delay_ns": 0},
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: "-".join(map(str, p)))
@pytest.mark.parametrize("release", ["2.6.24", "2.6.35", "6.18"])
def test_a_transaction_is_four_allocations_and_four_frees(policy, placement, release):
    result = run(
        "tcp_rr",
        policy=policy,
        threads=3,
        transactions=200,
        release=release,
        **placement,
    )

    assert result.operations == 3 * 200
    assert settle(result) == all_of(4 * 600)


def test_what_interrupts_do_is_no_context_switch():
    row = slabq.run(
        "tcp_rr",
        policy="slab",
        engine="sim",
        machine="opteron-4x4",
        placement="client-server",
        threads=1,
        pin_step=1,
        transactions=500,
    ).row()

    # The thread is on CPU 1 and sleeps once a transaction; interrupts are on CPU 0.
    assert 500 <= row["context_switches"] <= 505


def migrations(threads: int, **parameters: int | str) -> int:
    """Of tasks, in 300 transactions a thread on 4 nodes of 4 CPUs."""
    row = slabq.run(
        "tcp_rr",
        policy="slab",
        kernel="2.6.35",
        engine="sim",
        machine="opteron-4x4",
        threads=threads,
        transactions=300,
        **parameters,
    ).row()
    return int(row["cpu_migrations"])


def test_a_waker_that_is_alone_draws_the_task_only_if_the_rule_says_so():
    # 3 pairs on 6 CPUs, each end the only task of its CPU; the other end's is idle.
    assert migrations(3, sched_wake_low_load=0) == 0
    assert migrations(3, sched_wake_low_load=1) > 300


def test_a_cpu_is_idle_to_a_waker_until_what_is_queued_runs_if_the_rule_says_so():
    # The CPU is idle below its interrupts, which wake one thread after the other.
    rules = {"placement": "client-server", "sched_wake_low_load": 0}
    rules["sched_force_after"] = 0  # idle CPUs pull none of them
    assert migrations(8, **rules, sched_idle_if_queued=0) > 300
    # Each thread goes to it once, and stays.
    assert migrations(8, **rules, sched_idle_if_queued=1) <= 8


# SLAB counts the frees of objects that belong to another node than the CPU's, so with a
# CPU a node this is how many objects another CPU has allocated.
@pytest.mark.parametrize(
    ("placement", "pin_step", "remote_share"),
    [
        ("localhost", 1, 1),  # netperf on CPU 0, netserver on CPU 1
        ("localhost", 2, 0),  # both on one CPU
        ("client-server", 1, 1),  # interrupts on CPU 0, the thread on CPU 1
        ("client-server", 0, 0),  # both on CPU 0
    ],
)
def test_a_segment_is_freed_by_the_cpu_that_receives_its_ack(
    placement, pin_step, remote_share
):
    result = run(
        "tcp_rr",
        machine=NUMA,
        threads=1,
        transactions=500,
        placement=placement,
        pin_step=pin_step,
        delay_ns=0,
    )

    assert settle(result) == all_of(2000)
    assert result.counters["node_frees"] == remote_share * 2000


def test_a_server_and_an_interrupt_cpu_free_what_the_other_allocated():
    result = run(
        "tcp_rr",
        machine=NUMA,
        threads=1,
        transactions=500,
        placement="client-server",
        side="server",
        pin_step=0,
        irq_cpu=1,
        delay_ns=0,
    )

    assert result.counters["node_frees"] == 2000


@pytest.mark.parametrize("ring", [1, 7, 256])
def test_a_ring_holds_its_buffers_beside_the_transactions(ring):
    result = run(
        "tcp_rr", threads=2, transactions=100, placement="client-server", ring=ring
    )

    assert settle(result) == all_of(4 * 200 + 2 * ring)


def test_a_transaction_between_machines_takes_at_least_the_delay():
    result = run(
        "tcp_rr",
        threads=1,
        transactions=20,
        placement="client-server",
        delay_ns=1_000_000,
    )

    assert result.elapsed_s >= 20 * 0.001


@pytest.mark.parametrize(
    ("placement", "handlings"),
    [
        ("localhost", 4),  # request and response, each sent and received
        ("client-server", 3),  # sent, taken by the interrupt, received
    ],
)
def test_each_handling_of_a_packet_costs_one_system_call(placement, handlings):
    transactions, syscall_ns = 200, 5000

    result = run(
        "tcp_rr",
        machine=slabq.Machine(cpus=1),  # which is never idle
        engine="sim",
        threads=1,
        transactions=transactions,
        placement=placement,
        delay_ns=0,
        syscall_ns=syscall_ns,
    )

    spent_ns = result.row()["profile"]["system_call"] * result.elapsed_s * 1e9
    calls = spent_ns / syscall_ns / transactions
    assert calls == pytest.approx(handlings, abs=0.02)  # the ends of the run


@pytest.mark.parametrize("warmup_operations", [100, 1000])
def test_switches_are_those_of_the_window(warmup_operations):
    """A pair on one CPU that takes turns: two switches a transaction, no more."""
    result = run(
        "tcp_rr",
        machine=slabq.Machine(cpus=1),
        engine="sim",
        threads=1,
        transactions=10_000,
        warmup_operations=warmup_operations,
        measure_operations=200,
    )

    assert result.operations == 200
    assert abs(result.row()["context_switches"] - 2 * 200) <= 2


@pytest.mark.parametrize("placement", ["localhost", "client-server"])
def test_seconds_end_a_run_whatever_transactions_says(placement):
    result = run("tcp_rr", seconds=1, transactions=1, placement=placement)

    assert result.elapsed_s >= 1
    assert result.operations > 2
    assert settle(result) == all_of(4 * result.operations)


def test_large_messages_are_sent_in_segments():
    # 40000 bytes are 3 segments of at most 16384: a pure ack for the second
    result = run("tcp_rr", threads=1, transactions=50, request_bytes=40000)

    assert settle(result) == all_of(50 * (2 * (3 + 1) + 2))


# -- tbench ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("skb_overhead", [0, 1])
def test_an_operation_of_one_segment_each_way_is_four_objects(policy, skb_overhead):
    result = run(
        "tbench", policy=policy, clients=3, operations=200, skb_overhead=skb_overhead
    )

    assert result.operations == 600
    assert settle(result) == all_of(4 * 600 + 4 * 3)  # and connecting


# Half of the objects are heads: of 4088 bytes, or of 4152 with the commit. SLUB's
# counters know nothing of what it passes on to the page allocator.
@pytest.mark.parametrize(
    ("policy", "kernel", "skb_overhead", "cached"),
    [
        ("slub", "2.6.24", 0, 0.5),  # above half a page: passed on
        ("slub", "2.6.25", 0, 1.0),
        ("slub", "2.6.25", 1, 0.5),  # above a page
        ("slab", "2.6.24", 0, 1.0),
        ("slab", "2.6.24", 1, 1.0),  # size-8192 is a cache
    ],
)
def test_the_policy_decides_what_goes_to_the_page_allocator(
    policy, kernel, skb_overhead, cached
):
    result = slabq.run(
        "tbench",
        policy=policy,
        kernel=kernel,
        machine=SMP,
        operations=200,
        skb_overhead=skb_overhead,
        progress=False,
    )
    names = ("alloc_fastpath", "alloc_slowpath", "allochit", "allocmiss")
    counted = sum(result.counters.get(name, 0) for name in names)
    refills = result.counters.get("allocmiss", 0)

    allocations = settle(result)[0]
    assert cached * allocations <= counted <= cached * allocations + refills


SCRIPTS = [
    # one line, objects an operation: 2 a segment, 2 a pure ack
    ("Flush 12120", 4),
    ('NTCreateX "\\clients\\client1" 0x1 0x2 12114 SUCCESS', 4),
    ("ReadX 12120 0 65535 16000", 4),
    ("ReadX 12120 0 65535 16384", 2 + 2 * 2 + 2),  # 59 bytes more: two segments
    ("WriteX 12120 0 65471 65471", 4 * 2 + 2 * 2 + 2),  # four segments
]


@pytest.mark.parametrize(("line", "objects"), SCRIPTS)
def test_a_load_file_decides_the_messages(tmp_path, line, objects):
    path = tmp_path / "client.txt"
    path.write_text(line + "\n")

    result = run("tbench", clients=2, operations=50, loadfile=path)

    assert settle(result) == all_of(100 * objects + 4 * 2)
    assert result.parameters["loadfile"] == str(path)


def test_a_load_file_is_gone_through_in_order_and_again(tmp_path):
    path = tmp_path / "client.txt"
    path.write_text("Flush 1\nWriteX 1 0 65471 65471\nSleep 100\n# no operation\n\n")

    result = run("tbench", clients=1, operations=5, loadfile=path)

    assert settle(result) == all_of(4 + 4 + 14 + 4 + 14 + 4)  # connecting comes first


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("NTCreateX \\clients\\client1 0x1 0x2 12115", (72 + 2 * 16, 87)),
        ("0.531 Close 12120 SUCCESS", (47, 39)),
        ("Rename \\a \\bc", (47 + 2 * 5, 39)),
        ("Unlink \\a 0x6", (43 + 4, 39)),
        ("QUERY_PATH_INFORMATION \\clients", (55 + 16, 71)),
        ("QUERY_FILE_INFORMATION 12120 256", (59, 71)),
        ("QUERY_FS_INFORMATION 1", (59, 71)),
        ("SET_FILE_INFORMATION 12120 1029", (71, 47)),
        ('FIND_FIRST "\\clients\\*" 260 1366 10', (59 + 20, 39 + 900)),
        ('FIND_FIRST \\clients\\client1\\FILLER"*', (59 + 2 * 25, 39)),
        ("WriteX 12120 0 100 100", (159, 55)),
        ("ReadX 12120 0 65535 4096", (59, 4155)),
        ("LockX 12120 0 1", (51, 39)),
        ("UnlockX 12120 0 1", (51, 39)),
        ("Flush 12120", (41, 39)),
        ("", None),
    ],
)
def test_the_messages_of_an_operation_have_tbench_s_sizes(line, step):
    assert step_of_line(line) == step


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Flush 1\nDance 2\n", "line 2: operation 'Dance' is not known"),
        ("WriteX 1 0\n", "line 1: word 4 is missing"),
        ("WriteX 1 0 many 1\n", "line 1: invalid literal"),
        ("ReadX 1 0 9 -9\n", "line 1: -9 is not in 0 to"),
        ("NTCreateX\n", "line 1: word 2 is missing"),
        ("# nothing\n", "has no operation"),
    ],
)
def test_a_load_file_that_is_none_is_told_by_its_line(tmp_path, text, message):
    path = tmp_path / "client.txt"
    path.write_text(text)

    with pytest.raises(slabq.ParameterError, match=message):
        run("tbench", loadfile=path)


def test_a_load_file_that_is_not_there_is_named():
    with pytest.raises(
        slabq.ParameterError, match=r"loadfile 'no\.txt' cannot be read"
    ):
        read_loadfile("no.txt")


# -- kmalloc ---------------------------------------------------------------------------

KMALLOC = [
    # test, CPUs of three that take part
    ("alloc-free", 1),
    ("pairs", 1),
    ("concurrent", 3),
    ("remote-free", 3),
    ("bulk", 1),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("test", "cpus"), KMALLOC)
@pytest.mark.parametrize("size", [8, 1000, 20000])
def test_an_operation_of_a_kmalloc_test_is_a_pair_of_calls(policy, test, cpus, size):
    result = run(
        "kmalloc",
        policy=policy,
        machine=slabq.Machine(cpus=3),
        test=test,
        size=size,
        count=700,
        loops=2,
    )

    assert result.operations == cpus * 1400
    assert settle(result) == all_of(cpus * 1400)
    halves = 0 if test in ("pairs", "bulk") else cpus * 2
    for path in ("kmalloc", "kfree"):
        assert result.latency_ns.get(path, {"count": 0})["count"] == halves


@pytest.mark.parametrize(("test", "remote"), [("concurrent", 0), ("remote-free", 1400)])
def test_only_remote_free_frees_what_another_cpu_allocated(test, remote):
    result = run("kmalloc", machine=NUMA, test=test, count=700)

    assert result.counters["node_frees"] == remote


@pytest.mark.parametrize("bulk", [1, 2, 30, 250])
@pytest.mark.parametrize("policy", POLICIES)
def test_bulk_calls_of_every_size_give_back_what_they_took(policy, bulk):
    result = run("kmalloc", policy=policy, test="bulk", bulk=bulk, count=1001)

    assert result.operations == 1001
    assert settle(result) == all_of(1001)


@pytest.mark.parametrize(
    ("cpus", "parameters", "message"),
    [
        (
            1,
            {"test": "remote-free"},
            "at_once is 1: accepted are 2 to 1, and the machine",
        ),
        (2, {"test": "remote-free", "at_once": 1}, "at_once is 1: accepted are 2 to 2"),
        (2, {"test": "pairs", "at_once": 3}, "at_once is 3: accepted are 1 to 2"),
        (2, {"test": "bulk", "bulk": 251}, "bulk is 251: accepted are 1 to 250"),
        (
            2,
            {"test": "remote free"},
            "unknown test 'remote free': known are remote-free",
        ),
    ],
)
def test_a_kmalloc_test_that_cannot_be_made_is_refused(cpus, parameters, message):
    with pytest.raises(slabq.ParameterError, match=message):
        run("kmalloc", machine=slabq.Machine(cpus=cpus), **parameters)


# -- producer-consumer and churn -------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("queue", [1, 256])
def test_every_object_that_is_produced_is_consumed(policy, queue):
    result = run("producer-consumer", policy=policy, pairs=2, objects=3000, queue=queue)

    assert result.operations == 6000
    assert settle(result) == all_of(6000)


@pytest.mark.parametrize(("pin_step", "remote"), [(1, 2000), (2, 0)])
def test_a_consumer_on_another_node_frees_every_object_there(pin_step, remote):
    result = run("producer-consumer", machine=NUMA, objects=2000, pin_step=pin_step)

    assert result.counters["node_frees"] == remote


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("shared", "tables"), [(0, 3), (1, 1)])
def test_churn_fills_its_tables_replaces_and_empties_them(policy, shared, tables):
    result = run(
        "churn", policy=policy, tasks=3, slots=500, replacements=1000, shared=shared
    )

    assert result.operations == 3000
    assert settle(result) == all_of(tables * 500 + 3000)
    assert result.memory["peak_bytes"] > tables * 500 * 8


# -- cyclictest ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_cyclictest_measures_wake_ups_while_hackbench_moves_its_messages(policy):
    result = run("cyclictest", policy=policy, groups=1, loops=100, interval_us=100)

    assert result.operations == 20 * 20 * 100
    assert settle(result) == all_of(2 * result.operations)
    wakeup = result.latency_ns["wakeup"]
    assert wakeup["count"] >= 2  # at least one on each CPU
    assert 0 < wakeup["p50"] <= wakeup["p99"] <= wakeup["max"]


def test_each_thread_of_cyclictest_has_its_latencies_under_its_cpu():
    result = run("cyclictest", groups=1, loops=100, interval_us=100, distance_us=300)
    sample = result.sample
    threads = sample["latency_by_cpu_ns"]["wakeup"]
    whole = sample["latency_ns"]["wakeup"]

    assert set(threads) == {"0", "1"}
    assert sum(thread["count"] for thread in threads.values()) == whole["count"]
    assert max(thread["max"] for thread in threads.values()) == whole["max"]
    assert threads["0"]["count"] > threads["1"]["count"]  # 100 us apart, and 400


def test_the_time_of_cyclictest_is_that_of_hackbench():
    # its sleepers first wake after 0.4 s, when all messages are long read
    result = run("cyclictest", groups=1, fds=2, loops=2, interval_us=400_000)

    assert result.elapsed_s < 0.4


# -- both engines ----------------------------------------------------------------------

# Short runs of every workload; the numbers of objects do not depend on who is faster.
ON_BOTH = [
    ("hackbench", {"groups": 1, "loops": 5}),
    ("tcp_rr", {"transactions": 100}),
    ("tcp_rr", {"transactions": 100, "placement": "client-server", "ring": 8}),
    ("tbench", {"operations": 100, "io_bytes": 40000}),
    *(("kmalloc", {"test": test, "count": 500}) for test, _ in KMALLOC),
    ("producer-consumer", {"objects": 500}),
    ("churn", {"slots": 100, "replacements": 200}),
    ("churn", {"slots": 100, "replacements": 200, "shared": 1}),
    ("cyclictest", {"groups": 1, "loops": 20, "interval_us": 100}),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("name", "parameters"), ON_BOTH, ids=str)
def test_both_engines_do_the_same_work_and_the_simulated_one_repeats_itself(
    name, parameters, policy
):
    work = slabq.Workload(name, parameters)
    costs = list(sim_build.preset("i7-4790").items())

    def simulate():
        machine = _core.SimMachine([0, 0], [0, 0], [[10]], 1 << 30, 1, costs, 3)
        return json.loads(
            _core.run(machine, policy, [], work.core(), work.numbers(), 1)
        )

    row = simulate()
    native = run(work, policy=policy).sample

    for figure in ("operations", "allocations", "frees", "live"):
        assert row[figure] == native[figure], figure
    assert row["live"] == 0
    assert row["fingerprint"] == simulate()["fingerprint"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("tbench", {"operations": 200, "io_bytes": 40000}), ("churn", {"slots": 50})],
)
def test_random_work_is_the_same_under_every_policy_and_another_by_seed(
    name, parameters
):
    def work_of(policy, seed):
        sample = run(name, policy=policy, seed=seed, latency_interval=1, **parameters)
        memory = sample.memory  # of every allocation: what was asked for
        return settle(sample), memory["internal_fragmentation"]

    alike = {work_of("slub", seed=1), work_of("slub", seed=1)}

    assert len(alike) == 1
    assert work_of("slub", seed=2) not in alike
    assert len({work_of(policy, seed=1)[0] for policy in POLICIES}) == 1


# -- all of them -----------------------------------------------------------------------


@pytest.fixture
def output_of(capsys):
    """Run the command in this process; what it prints, for it must succeed."""

    def call(*words):
        status = main(list(words))
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return call


def test_every_workload_is_listed_with_what_it_is(output_of):
    listing = output_of("workloads")

    for name, kind in workload_kinds().items():
        assert kind.about
        assert name in listing
    assert "c:FILE.c" in listing


@pytest.mark.parametrize("name", workload_kinds())
def test_no_option_of_a_workload_is_one_that_every_run_has(name, output_of):
    text = output_of("run", name, "--help")  # a name twice is a warning: an error here

    for parameter in workload_kinds()[name].parameters.values():
        assert parameter.option_names[-1] in text


SHORT = {
    "hackbench": ["-g", "1", "-l", "5"],
    "tcp_rr": ["--threads", "2", "--transactions", "20", "--placement", "localhost"],
    "tbench": ["--clients", "2", "--operations", "20"],
    "kmalloc": ["--test", "remote-free", "--count", "100"],
    "producer-consumer": ["--objects", "100"],
    "churn": ["--slots", "10", "--replacements", "20"],
    "cyclictest": ["-i", "1000", "-d", "100", "-g", "1", "-l", "5"],
}


@pytest.mark.parametrize("name", workload_kinds())
def test_every_workload_runs_from_the_command_line(name, output_of):
    text = output_of("run", name, *SHORT[name], "-p", "slab", "--cpus", "2", "--json")

    (row,) = json.loads(text)["results"]
    assert row["workload"] == name
    assert row["operations"] > 0
    assert row["live"] == 0


@pytest.mark.parametrize(
    ("text", "number"), [("2.6.35", 20635), ("6.18", 61800), ("6.18.2", 61802)]
)
def test_a_kernel_release_can_be_written_as_such(text, number):
    assert slabq.Workload("tcp_rr", {"release": text}).parameters["release"] == number


@pytest.mark.parametrize("text", ["2.4", "2.6.21", "7.x", "six"])
def test_a_release_without_known_packets_is_refused(text):
    with pytest.raises(
        slabq.ParameterError, match=r"release is .*: accepted are 20622"
    ):
        slabq.Workload("tcp_rr", {"release": text})
