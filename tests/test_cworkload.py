"""A workload of the user's own: compiled, checked, then run like any other."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slabq
from slabq import _core
from slabq.cli import main

ROOT = Path(__file__).resolve().parent.parent
POLICIES = _core.policies()
MACHINE = slabq.Machine(cpus=2)

pytestmark = pytest.mark.threads

HEAD = '#include "slabq/workload.h"\n'
SETUP = """
static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
"""
TABLE = """
static const struct sq_workload_parameter parameters[] = {
    {"tasks", 2, 1, 100, "how many"}, {"loops", 50, 0, 1000000, "of each"},
};
"""
FIELDS = {
    "abi": "SQ_WORKLOAD_ABI",
    "name": '"mine"',
    "help": '"of a test"',
    "rate_unit": '"pairs/s"',
    "parameters": "parameters",
    "parameter_count": "2",
    "setup": "setup",
}


def definition(**changes):
    """The struct of a workload with the fields that differ; None leaves one out."""
    fields = {**FIELDS, **changes}
    text = ", ".join(f".{k} = {v}" for k, v in fields.items() if v is not None)
    return f"const struct sq_workload mine = {{{text}}};\n"


def source(body, **changes):
    """A whole file whose tasks do `body`; `cache` is of objects of 64 bytes."""
    return (
        HEAD
        + "static int64_t tasks, loops;\n"
        + "static void worker(const struct sq_env *env, sq_task *task, void *cache)\n"
        + "{\n(void)cache;\n"
        + body
        + "\n}"
        + SETUP
        + """{
    sq_cache *cache = env->cache_create(task, "mine", 64, 0, 0);
    tasks = values[0]; loops = values[1];
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, cache, (int32_t)(i % env->cpu_count(task)));
    return cache;
}"""
        + TABLE
        + definition(**changes)
    )


PAIRS = """
    for (int64_t i = 0; i < loops; i++) {
        void *object = env->alloc(task, cache);
        env->touch_write(task, object, 64);
        env->free(task, cache, object);
        env->progress(task, 1);
    }
"""


@pytest.fixture
def write(tmp_path):
    """Write C into a new file; its path."""

    def put(text, name="mine.c"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return put


def run(path, *, policy="slab", machine=MACHINE, **parameters):
    workload = slabq.compile_workload(path)
    return slabq.run(
        workload, policy=policy, machine=machine, progress=False, **parameters
    )


# -- what works ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_workload_in_c_runs_under_every_policy(write, policy):
    result = run(write(source(PAIRS)), policy=policy, tasks=3, loops=100)

    assert result.operations == 300
    assert result.rate_unit == "pairs/s"
    sample = result.sample
    assert (sample["allocations"], sample["frees"], sample["live"]) == (300, 300, 0)


def test_the_example_of_the_header_compiles_and_runs(write):
    header = (Path(slabq.get_include()) / "slabq" / "workload.h").read_text()
    comment = header.split("*/")[0]
    lines = re.findall(r"^ \*   (.*)$", comment, re.MULTILINE)
    text = "\n".join(line for line in lines if not line.startswith("- "))
    text = text[: text.index("};", text.index("const struct sq_workload toy")) + 2]

    result = run(write(HEAD + text))

    assert result.operations == 4 * 1000


def test_its_parameters_are_the_file_s_own_and_those_of_every_run(write):
    workload = slabq.compile_workload(write(source(PAIRS)))

    assert workload.parameters["tasks"] == 2
    assert workload.parameters["loops"] == 50
    assert {"slice_calls", "wake_affine"} <= set(workload.parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tasks": 101}, "tasks is 101: accepted are 1 to 100"),
        ({"tusks": 1}, "unknown parameter of .*'tusks': known are tasks"),
    ],
)
def test_a_value_that_its_table_does_not_accept_is_refused(write, parameters, message):
    with pytest.raises(slabq.ParameterError, match=message):
        run(write(source(PAIRS)), **parameters)


def test_the_command_line_runs_it_with_its_parameters_as_options(write, capsys):
    path = write(source(PAIRS))

    status = main(
        ["run", f"c:{path}", "--loops", "5,7", "-p", "slab", "--cpus", "2", "--json"]
    )

    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    rows = json.loads(out)["results"]
    assert [row["operations"] for row in rows] == [10, 14]
    assert {row["workload"] for row in rows} == {f"c:{path}"}


@pytest.mark.parametrize("loops", ["5", "5,7"])
def test_its_results_make_a_table(write, capsys, loops):
    path = write(source(PAIRS))

    status = main(["run", f"c:{path}", "--loops", loops, "--cpus", "2"])

    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert "slab" in out


def test_a_changed_file_is_compiled_anew(write):
    path = write(source(PAIRS))
    before = run(path).operations
    write(source(PAIRS + PAIRS))

    assert (before, run(path).operations) == (100, 200)


def test_a_workload_outlives_its_file(write):
    path = write(source(PAIRS))
    workload = slabq.compile_workload(path)
    path.unlink()

    result = slabq.run(workload, policy="slab", machine=MACHINE, progress=False)

    assert result.operations == 100


def test_a_workload_travels_and_a_result_repeats_itself(write, tmp_path):
    workload = slabq.compile_workload(write(source(PAIRS)))
    copy = pickle.loads(pickle.dumps(workload))
    result = slabq.run(copy, policy="slab", machine=MACHINE, loops=9, progress=False)
    result.save(tmp_path / "result.slabq")

    (loaded,) = slabq.load(tmp_path / "result.slabq")

    assert loaded == result
    assert loaded.repeat().operations == 18


def test_another_compiler_is_taken_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O1")

    with pytest.raises(slabq.ParameterError, match="'no-such-compiler' is none"):
        run(write(source(PAIRS)))


def test_a_warning_of_the_compiler_is_passed_on(write):
    path = write(source(PAIRS + "\n#warning unfinished\n"))

    with pytest.warns(UserWarning, match=r"mine\.c:\d+:.*unfinished"):
        slabq.compile_workload(path)


# Builds the package anew, and the build is not what is instrumented.
@pytest.mark.unsanitized
def test_the_built_package_has_the_header(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    built = tmp_path / "slabq" / "include" / "slabq" / "workload.h"

    original = ROOT / "csrc" / "include" / "slabq" / "workload.h"
    assert built.read_text() == original.read_text()


# -- what is refused -------------------------------------------------------------------

BROKEN = {
    "no semicolon": (source("int x = 1"), r"mine\.c:\d+:\d+: error: expected"),
    "an unknown function": (source("reboot_all(task);"), "reboot_all"),
    "an undefined function": (
        source("extern void nowhere(void); nowhere();"),
        "undefined reference to .nowhere",
    ),
    "a task of another form": (
        source("").replace("sq_task *task, void *cache)", "void *cache)", 1),
        "error:",
    ),
    "no header": ("#include <no/such.h>\n" + source(PAIRS), r"no/such\.h"),
    "a frame beyond a task's stack": (
        source("char big[40000]; env->touch_write(task, big, sizeof(big));"),
        "frame",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_c_that_does_not_compile_is_one_line_with_the_first_complaint(
    write, text, message
):
    with pytest.raises(slabq.ParameterError, match=message) as caught:
        slabq.compile_workload(write(text))

    assert "\n" not in str(caught.value)
    assert "mine.c" in str(caught.value)


STRUCT = "struct sq_workload mine"
WITHOUT_SYMBOL = {
    "no workload": (HEAD + "int x;\n", "defines none: accepted is"),
    "only a mention": (
        HEAD
        + '/* const struct sq_workload a = 0; */ char *s = "struct sq_workload b =";',
        "defines none: accepted is",
    ),
    "two workloads": (
        source(PAIRS) + definition().replace("mine =", "yours ="),
        r"defines 2 \(mine, yours\): accepted is",
    ),
    "a static one": (
        source(PAIRS).replace("const struct sq_workload mine", "static " + STRUCT)
        + "void *use(void);\nvoid *use(void) { return &mine; }\n",
        "has no symbol 'mine': accepted is a struct sq_workload that is not static",
    ),
}


@pytest.mark.parametrize(
    ("text", "message"), WITHOUT_SYMBOL.values(), ids=WITHOUT_SYMBOL
)
def test_a_file_without_its_one_workload_is_refused(write, text, message):
    with pytest.raises(slabq.ParameterError, match=message):
        slabq.compile_workload(write(text))


UNUSABLE = [
    ({"abi": "SQ_WORKLOAD_ABI + 1"}, r"abi is 2: accepted is 1"),
    ({"abi": None}, r"abi is 0: accepted is 1"),
    ({"setup": None}, "has no setup function"),
    ({"name": None}, "has no usable name or rate_unit"),
    ({"name": '""'}, "has no usable name or rate_unit"),
    ({"rate_unit": '"\\xff/s"'}, "has no usable name or rate_unit"),
    ({"parameters": None}, "has 2 parameters and no table"),
    (
        {"parameter_count": "4000000000u"},
        "has 4000000000 parameters: accepted are 0 to",
    ),
]


@pytest.mark.parametrize(("fields", "message"), UNUSABLE, ids=str)
def test_a_workload_that_cannot_be_run_is_refused_before_it_is(write, fields, message):
    with pytest.raises(slabq.ParameterError, match=message):
        slabq.compile_workload(write(source(PAIRS, **fields)))


TABLES = [
    ('{"tasks", 0, 1, 9, ""}', "the default 0, the minimum 1 and the maximum 9"),
    ('{"tasks", 5, 9, 1, ""}', "the default 5, the minimum 9 and the maximum 1"),
    ('{NULL, 1, 1, 9, ""}', "parameter 0 of workload mine has no usable name"),
    ('{"two words", 1, 1, 9, ""}', "parameter 0 of workload mine has no usable name"),
    ('{"slice_calls", 1, 1, 9, ""}', "parameter slice_calls .* that is taken"),
    ('{"loops", 1, 1, 9, ""}', "parameter loops .* that is taken"),
    ('{"policy", 1, 1, 9, ""}', "has a parameter 'policy': accepted are names"),
]


@pytest.mark.parametrize(("row", "message"), TABLES)
def test_a_table_that_contradicts_itself_is_refused(write, row, message):
    first = '{"tasks", 2, 1, 100, "how many"}'

    with pytest.raises(slabq.ParameterError, match=message):
        slabq.compile_workload(write(source(PAIRS).replace(first, row)))


def test_help_that_is_missing_or_no_text_does_no_harm(write):
    text = source(PAIRS, help=None).replace('"how many"', "NULL")
    text = text.replace('"of each"', '"\\xff"')

    assert run(write(text)).operations == 100


@pytest.mark.parametrize("address", [0, 1, 12345677])
def test_an_address_that_can_be_no_workload_s_is_refused(address):
    with pytest.raises(slabq.ParameterError, match="accepted is that of a struct"):
        _core.describe_workload(address)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(slabq.ParameterError, match=r"c:no/such\.c' cannot be read"):
        slabq.compile_workload("no/such.c")


# -- what the environment does for it --------------------------------------------------

SLEEPS = """
    uint64_t wake_ns = env->now_ns(task) + 2000000;
    uint32_t path = env->latency_path(task, "late"), cpu = env->cpu_index(task);
    for (int64_t i = 0; i < loops; i++, wake_ns += 1000000) {
        env->sleep_until(task, wake_ns);
        if (env->now_ns(task) < wake_ns)
            env->fail(task, "woken early");
        if (env->cpu_index(task) != cpu)
            env->fail(task, "woken elsewhere");
        env->latency(task, path, env->now_ns(task) - wake_ns);
        env->progress(task, 1);
    }
"""


@pytest.mark.parametrize("tasks", [1, 2, 20])
def test_a_sleeper_is_woken_on_its_cpu_and_not_before_its_time(write, tasks):
    result = run(write(source(SLEEPS)), tasks=tasks, loops=5)

    assert result.operations == 5 * tasks
    assert result.latency_ns["late"]["count"] == 5 * tasks
    assert result.elapsed_s >= 0.006


ORDER = """
    static uint64_t start_ns, woken, order[3];
    static const uint64_t delays_ns[] = {20000000, 5000000, 60000000};
    uint64_t own = __atomic_fetch_add(&woken, 1, __ATOMIC_RELAXED);
    if (own == 0)
        start_ns = env->now_ns(task);
    env->sleep_until(task, start_ns + delays_ns[own % 3]);
    order[(woken - 3) % 3] = own;
    __atomic_fetch_add(&woken, 1, __ATOMIC_RELAXED);
    if (woken == 6 && !(order[0] == 1 && order[1] == 0 && order[2] == 2))
        env->fail(task, "woken out of order");
    env->progress(task, 1);
"""


def test_the_sleepers_of_a_cpu_are_woken_in_the_order_of_their_times(write):
    result = run(write(source(ORDER)), machine=slabq.Machine(cpus=1), tasks=3)

    assert result.operations == 3


BUSY = """
    static uint64_t is_over;
    static int64_t started;
    if (__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED) == 0) {
        env->sleep_until(task, env->now_ns(task) + 1000000);
        __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
        env->progress(task, 1);
"""


def test_a_sleeper_whose_time_has_come_takes_the_cpu_from_a_busy_task(write):
    machine = slabq.Machine(cpus=1)  # the other task never ends without it

    result = run(write(source(BUSY)), machine=machine, slice_calls=0)

    assert result.operations > 0


DEADLOCK = """
    static uint64_t never;
    env->sleep_until(task, env->now_ns(task) + 5000000);
    env->wait(task, &never, 0);
"""


def test_waiting_for_nothing_is_told_once_nobody_sleeps(write):
    with pytest.raises(slabq.Error, match="deadlock: all 3 tasks"):
        run(write(source(DEADLOCK)))


def test_a_run_can_be_stopped_while_all_sleep(write):
    text = source("env->sleep_until(task, env->now_ns(task) + 60000000000);")
    workload = slabq.compile_workload(write(text))

    def stop(share):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        slabq.run(workload, policy="slab", machine=MACHINE, progress=stop)


@pytest.mark.parametrize("engine", ["native", "sim"])
@pytest.mark.parametrize(
    "call",
    [
        "env->kfree(task, env->kmalloc(task, 100));",
        "env->kfree(task, NULL);",
        "env->touch_write(task, memory, 8);",
        "env->touch_read(task, memory, 65536);",
        "env->alloc_bulk(task, cache, 0, NULL);",
        "(void)env->now_ns(task);",
        "(void)env->argument(task);",
        "env->expect(task, 1);",
        "env->think(task, 0);",
        "env->yield(task);",
        "env->progress(task, 0);",
    ],
)
def test_a_task_that_makes_one_call_for_ever_can_be_stopped(write, engine, call):
    text = source(
        f"void *memory = env->kmalloc(task, 65536);\nfor (;;) {{ {call} }}",
    ).replace("values[0]", "1")
    workload = slabq.compile_workload(write(text))

    def stop(share):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        slabq.run(
            workload, policy="slub", machine=MACHINE, engine=engine, progress=stop
        )


@pytest.mark.parametrize(
    "call", ["think(task, UINT64_MAX)", "sleep_until(task, UINT64_MAX / 1000)"]
)
def test_a_time_beyond_the_simulated_clock_is_refused(write, call):
    with pytest.raises(slabq.ParameterError, match=r"simulated clock: accepted are 0"):
        run(write(source(f"env->{call};")), engine="sim")


WRONG_FREES = [
    ("env->free(task, cache, NULL);", "is no object of it"),
    ("env->free(task, cache, object + 8);", "is no object of it"),
    ("env->free(task, other, object);", "is no object of it"),
    ("env->free(task, cache, outside);", "is no object of it"),
    ("env->free_bulk(task, cache, 1, (void *[]){outside});", "is no object of it"),
    ("env->kfree(task, outside);", "is nothing that kmalloc gave"),
    ("env->kfree(task, (void *)1);", "is nothing that kmalloc gave"),
    ("env->kfree(task, pages);", "is nothing that kmalloc gave"),
    ("env->pages_free(task, NULL);", "is no block of pages"),
    ("env->pages_free(task, object);", "is no block of pages"),
    ("env->pages_free(task, (char *)pages + 4096);", "is no block of pages"),
]
SECOND_FREES = [
    ("for (;;) env->free(task, cache, object);", "is free already"),
    ("env->free_bulk(task, cache, 2, (void *[]){object, object});", "is free already"),
    ("for (;;) env->pages_free(task, pages);", "is no block of pages"),
    ("char *m = env->kmalloc(task, 99); for (;;) env->kfree(task, m);", "free already"),
]
MISUSE = [
    (engine, policy, *case)
    for engine in ("sim", "native")
    for policy in POLICIES
    for case in WRONG_FREES + SECOND_FREES
]


@pytest.mark.parametrize(("engine", "policy", "call", "message"), MISUSE)
def test_a_wrong_free_ends_the_run_with_the_address(
    write, engine, policy, call, message
):
    text = source(
        """
        static char outside[64];
        sq_cache *other = env->cache_create(task, "other", 200, 0, 0);
        char *object = env->alloc(task, cache);
        void *pages = env->pages_alloc(task, 1);
        (void)outside, (void)other, (void)object, (void)pages;
        """
        + call
    )
    with pytest.raises(slabq.CorruptionError, match=message):
        run(write(text), policy=policy, engine=engine)


TWO_FREE_THE_SAME = """
    env->barrier_wait(task, gate);
    for (int i = 0; i < 4096; i++)
        env->free(task, cache, shared[i]);
"""
FILL_FIRST = """
    gate = env->barrier_create(task, 2, false);
    for (int i = 0; i < 4096; i++)
        shared[i] = env->alloc(task, cache);
"""


@pytest.mark.parametrize("engine", ["sim", "native"])
@pytest.mark.parametrize("policy", POLICIES)
def test_of_two_tasks_that_free_the_same_objects_one_is_told(write, policy, engine):
    statics = "static void *shared[4096]; static sq_barrier *gate;\n"
    text = source(TWO_FREE_THE_SAME).replace("tasks =", FILL_FIRST + "tasks =", 1)
    text = text.replace(HEAD, HEAD + statics)

    # Its slab may have gone back since.
    message = "is (free already|no object of it)"
    with pytest.raises(slabq.CorruptionError, match=message):
        run(write(text), policy=policy, engine=engine)


def test_an_object_that_was_handed_out_again_may_be_freed_again(write):
    text = source(
        """
        for (int64_t i = 0; i < loops; i++) {
            void *one = env->alloc(task, cache), *other;
            env->free(task, cache, one);
            other = env->alloc(task, cache); /* the same, on a quiet CPU */
            env->free(task, cache, other);
        }
        """
    )
    for policy in POLICIES:
        sample = run(write(text), policy=policy, engine="native").sample
        assert (sample["allocations"], sample["frees"]) == (200, 200)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_the_check_the_counters_of_a_right_run_are_the_same(write, policy):
    rows = [
        run(write(source(PAIRS)), policy=policy, engine="sim", check_frees=check).sample
        for check in (1, 0)
    ]

    for key in ("fingerprint", "counters", "allocations", "frees", "elapsed_s"):
        assert rows[0][key] == rows[1][key], key


@pytest.mark.parametrize("check", [-1, 2])
def test_a_check_that_is_neither_on_nor_off_is_refused(write, check):
    with pytest.raises(slabq.ParameterError, match="check_frees is"):
        run(write(source(PAIRS)), check_frees=check)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_may_be_freed_is_freed(write, policy):
    text = source(
        """
        void *objects[8];
        for (size_t bytes = 1; bytes < 4 << 20; bytes *= 2)
            env->kfree(task, env->kmalloc(task, bytes));
        for (int i = 0; i < 4; i++) {
            env->alloc_bulk(task, cache, 8, objects);
            env->free(task, cache, objects[7]);
            env->free_bulk(task, cache, 7, objects);
        }
        env->pages_free(task, env->pages_alloc(task, 3));
        """
    )
    for engine in ("sim", "native"):
        assert run(write(text), policy=policy, engine=engine).operations == 0


def test_a_task_without_a_function_is_refused(write):
    with pytest.raises(slabq.Error, match="a task is spawned without a function"):
        run(write(source("env->spawn(task, NULL, NULL, SQ_ANY_CPU);")))


BULK = """
    void *objects[100];
    for (int64_t i = 0; i < loops; i++) {
        env->alloc_bulk(task, cache, (size_t)i % 100, objects);
        env->free_bulk(task, cache, (size_t)i % 100, objects);
    }
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_bulk_calls_count_their_objects(write, policy):
    result = run(write(source(BULK)), policy=policy, tasks=1, loops=200)

    count = 2 * sum(range(100))
    sample = result.sample
    assert (sample["allocations"], sample["frees"]) == (count, count)


def test_a_stopped_clock_stays_stopped(write):
    text = source("env->stop_clock(task); env->think(task, 50000000);")

    assert run(write(text), tasks=1).elapsed_s < 0.05


def test_more_latencies_than_there_is_room_for_are_refused(write):
    text = source(
        """
    static const char *names[] = {"a", "b", "c", "d", "e"};
    for (int64_t i = 0; i < loops; i++)
        env->latency(task, env->latency_path(task, names[i % 5]), 1);
    """
    )

    assert set(run(write(text), loops=4).latency_ns) == set("abcd")
    with pytest.raises(slabq.Error, match="more paths than SQ_LATENCY_PATHS_MAX"):
        run(write(text), loops=5)


def test_a_message_of_setup_is_a_refused_parameter(write):
    text = source(PAIRS).replace("    tasks = values", '    env->fail(task, "no");//')

    with pytest.raises(slabq.ParameterError, match="workload mine: no"):
        run(write(text))
