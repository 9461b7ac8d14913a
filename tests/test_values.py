"""Machines, policies and workloads are values that refuse what cannot be."""

import dataclasses
from pathlib import Path

import pytest

import slabq
from slabq import _core, topology
from slabq.checks import closest_first, require_switch
from slabq.machine import find_machine
from slabq.policy import find_policy, kernel_profiles, policy_names, version_key
from slabq.workload import Workload, find_workload, parse_old_hackbench, workload_kinds

OPTERON = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]]
MIB = 1 << 20


def machine(**values):
    return lambda: slabq.Machine(**values)


# What is refused, and words of the message: the name, the value, what is accepted.
REFUSED = {
    "no cpu": (machine(cpus=0), ["cpus is 0", "1 to 256"]),
    "too many cpus": (machine(cpus=257), ["cpus is 257", "1 to 256"]),
    "cpus as a word": (machine(cpus="four"), ["cpus is 'four'", "whole number"]),
    "half a cpu": (machine(cpus=1.5), ["cpus is 1.5", "whole number"]),
    "too many nodes": (machine(cpus=64, nodes=17), ["nodes is 17", "1 to 16"]),
    "more nodes than cpus": (machine(cpus=2, nodes=4), ["nodes is 4", "2 cpus"]),
    "distance not square": (
        machine(cpus=2, nodes=2, distance=[[10, 20], [20]]),
        ["row 1 has 1 values", "square"],
    ),
    "distance of other size": (
        machine(cpus=4, nodes=2, distance=OPTERON),
        ["4 by 4", "2 nodes", "2 by 2"],
    ),
    "diagonal not 10": (
        machine(cpus=2, nodes=2, distance=[[10, 20], [20, 11]]),
        ["distance[1][1] is 11", "accepted is 10"],
    ),
    "distance too near": (
        machine(cpus=2, nodes=2, distance=[[10, 10], [20, 10]]),
        ["distance[0][1] is 10", "11 to 255"],
    ),
    "distance too far": (
        machine(cpus=2, nodes=2, distance=[[10, 256], [20, 10]]),
        ["distance[0][1] is 256", "11 to 255"],
    ),
    "distance no matrix": (machine(cpus=1, distance=7), ["distance is 7", "rows"]),
    "node too small": (
        machine(cpus=1, node_bytes=4096),
        ["node_bytes is 4096", "multiples of 4194304"],
    ),
    "node of odd size": (
        machine(cpus=1, node_bytes=5 * MIB),
        ["node_bytes is 5242880", "multiples of 4194304"],
    ),
    "node of no memory": (machine(cpus=1, node_bytes=0), ["node_bytes is 0"]),
    "map too short": (
        machine(cpus=4, nodes=2, node_of_cpu=[0, 1]),
        ["node_of_cpu has 2 values", "accepted are 4"],
    ),
    "cpu on no node": (
        machine(cpus=2, nodes=2, node_of_cpu=[0, 2]),
        ["node_of_cpu[1] is 2", "0 to 1"],
    ),
    "order of page lists": (
        machine(cpus=1, pcp_order_max=11),
        ["pcp_order_max is 11", "0 to 10"],
    ),
    "negative delay": (
        machine(cpus=1, remote_delay_ns=-1),
        ["remote_delay_ns is -1", "0 to"],
    ),
    "option out of range": (
        lambda: slabq.Slab(slab_max_order=99),
        ["slab_max_order is 99", "0 to 10"],
    ),
    "flag that is a word": (
        lambda: slabq.geometry("slub", 64, hwcache_align="no"),
        ["hwcache_align is 'no'", "True and False"],
    ),
    "flag that is no switch": (
        lambda: slabq.geometry("slub", 64, poison=2),
        ["poison is 2", "True and False"],
    ),
    "switch neither on nor off": (
        lambda: slabq.Slab(noaliencache="maybe"),
        ["noaliencache is 'maybe'", "true and false"],
    ),
    "groups of none": (lambda: find_workload("hackbench", groups=0), ["groups is 0"]),
    "old hackbench words": (
        lambda: parse_old_hackbench(["100", "fiber"]),
        ["'100 fiber'", "100 process 2000"],
    ),
    "matrix of words": (
        lambda: topology.parse_distance("10 x;20 10"),
        ["'10 x;20 10'"],
    ),
    "empty matrix": (lambda: topology.parse_distance(" "), ["10 20;20 10"]),
    "fake nodes by size": (lambda: topology.parse_numa_fake("512M"), ["'512M'"]),
    "too few fake distances": (
        lambda: topology.parse_numa_fake("2:10,20"),
        ["2 distances", "accepted are 4"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_is_refused_in_one_line(name):
    make, words = REFUSED[name]

    with pytest.raises(slabq.ParameterError) as caught:
        make()

    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


UNKNOWN = {
    "policy": (lambda: find_policy("slubb"), "slub"),
    "kernel": (lambda: slabq.Slab(kernel="6.11"), "6.1"),
    "policy option": (lambda: find_policy("slab", noaliencaches=1), "noaliencache"),
    "machine": (lambda: find_machine("opteron"), "opteron-4x4"),
    "workload": (lambda: find_workload("hackbenhc"), "hackbench"),
    "workload parameter": (lambda: find_workload("hackbench", group=1), "groups"),
    "mode": (lambda: find_workload("hackbench", mode="processes"), "process"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_name_lists_the_known_ones_closest_first(name):
    make, closest = UNKNOWN[name]

    with pytest.raises(slabq.ParameterError) as caught:
        make()

    known = str(caught.value).split("known are ")[1].split(", ")
    assert known[0] == closest


def test_a_word_of_a_workload_may_be_given_by_its_number():
    by_number = find_workload("tcp_rr", placement=1)

    assert by_number.parameters["placement"] == "client-server"
    with pytest.raises(slabq.ParameterError, match="placement is 2"):
        find_workload("tcp_rr", placement=2)


def test_closest_first_keeps_every_name():
    names = ["slab", "slub", "slub+q", "sheaves"]

    assert sorted(closest_first("sheaf", names)) == sorted(names)
    assert closest_first("sheaf", names)[0] == "sheaves"


def test_cpus_fall_to_nodes_in_equal_groups_of_neighbours():
    assert slabq.Machine(cpus=8, nodes=4).node_of_cpu == (0, 0, 1, 1, 2, 2, 3, 3)
    assert slabq.Machine(cpus=5, nodes=2).node_of_cpu == (0, 0, 0, 1, 1)


def test_distances_may_differ_by_direction():
    made = slabq.Machine(cpus=2, nodes=2, distance=[[10, 21], [31, 10]])

    assert made.distance == ((10, 21), (31, 10))


def test_values_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        slabq.Machine(cpus=2).cpus = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        slabq.Slab().kernel = "6.1"


def test_machines_of_equal_values_are_equal_and_hash_alike():
    one = slabq.Machine(cpus=4, nodes=2, distance=[[10, 20], [20, 10]])
    other = slabq.Machine(cpus=4, nodes=2)

    assert one == other
    assert hash(one) == hash(other)


def test_another_number_of_nodes_takes_default_distances_and_groups():
    made = find_machine("opteron-4x4").replace(nodes=2)

    assert made.distance == ((10, 20), (20, 10))
    assert made.node_of_cpu == (0,) * 8 + (1,) * 8
    assert made.name == "opteron-4x4*"


PRESETS = {
    "penryn-2x4": (8, 1, 4),
    "tigerton-4x4": (16, 1, 8),
    "opteron-4x4": (16, 4, 4),
    "i7-4790": (8, 1, 1),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_shape_of_its_machine(name):
    made = find_machine(name)

    assert (made.cpus, made.nodes, len(set(made.llc_of_cpu))) == PRESETS[name]
    assert made.about


def test_the_opteron_has_the_published_distances():
    assert find_machine("opteron-4x4").distance == tuple(map(tuple, OPTERON))


@pytest.mark.parametrize(
    ("text", "matrix"),
    [
        ("10 20;20 10", ((10, 20), (20, 10))),
        ("10,20\n20,10\n", ((10, 20), (20, 10))),
        ("10", ((10,),)),
    ],
)
def test_a_distance_matrix_is_read_from_text(text, matrix):
    assert topology.parse_distance(text) == matrix


@pytest.mark.parametrize(
    "text", ["2:10,20,20,10", "2U:10,20,20,10", "numa=fake=2", "2"]
)
def test_the_kernels_numa_fake_syntax_is_read(text):
    assert topology.parse_numa_fake(text) == (2, ((10, 20), (20, 10)))


def write_sysfs(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_the_host_is_read_with_its_nodes_distances_and_caches(tmp_path):
    files = {"cpu/online": "0-3", "node/online": "0,2"}
    for node, cpus, distance in ((0, "0-1", "10 21"), (2, "2-3", "21 10")):
        files[f"node/node{node}/cpulist"] = cpus
        files[f"node/node{node}/distance"] = distance
        for cpu in topology.parse_cpu_list(cpus):
            files[f"cpu/cpu{cpu}/cache/index0/level"] = "1"
            files[f"cpu/cpu{cpu}/cache/index0/shared_cpu_list"] = str(cpu)
            files[f"cpu/cpu{cpu}/cache/index3/level"] = "3"
            files[f"cpu/cpu{cpu}/cache/index3/shared_cpu_list"] = cpus

    host = topology.read_host(write_sysfs(tmp_path, files))

    assert host.node_of_cpu == (0, 0, 1, 1)
    assert host.llc_of_cpu == (0, 0, 1, 1)
    assert host.distance == ((10, 21), (21, 10))


def test_a_host_without_node_and_cache_folders_is_one_node(tmp_path):
    host = topology.read_host(write_sysfs(tmp_path, {"cpu/online": "0,2"}))

    assert host == ((0, 0), (0, 0), ((10,),))


def test_a_node_without_cpus_is_left_out_of_the_host(tmp_path):
    files = {"cpu/online": "0-1", "node/online": "0-1"}
    files |= {"node/node0/cpulist": "", "node/node0/distance": "10 40"}
    files |= {"node/node1/cpulist": "0-1", "node/node1/distance": "40 10"}

    host = topology.read_host(write_sysfs(tmp_path, files))

    assert host == ((0, 0), (0, 0), ((10,),))


PAIRS = 50  # of a kmalloc and a kfree, of four pages: SLUB passes both on


def zone_trips(kernel, **machine_values):
    result = slabq.run(
        "kmalloc",
        policy="slub",
        kernel=kernel,
        machine=slabq.Machine(cpus=1, **machine_values),
        test="pairs",
        size=16384,
        count=PAIRS,
    )
    return result.locks["zone_lock"]["acquisitions"]


@pytest.mark.parametrize("kernel", ["2.6.24", "2.6.35", "3.2", "4.19"])
def test_page_lists_of_an_older_kernel_pass_blocks_of_pages_to_the_zone(kernel):
    assert zone_trips(kernel) >= 2 * PAIRS
    assert zone_trips(kernel, pcp_order_max=3) < PAIRS / 2


@pytest.mark.parametrize("kernel", ["5.14-rt", "5.15", "6.1", "6.18"])
def test_page_lists_of_a_newer_kernel_keep_blocks_of_pages(kernel):
    assert zone_trips(kernel) < PAIRS / 2
    assert zone_trips(kernel, pcp_order_max=0) >= 2 * PAIRS


def test_a_machine_file_is_read_and_its_other_tables_left_alone(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text("cpus = 4\nnodes = 2\n[cost]\nl1_ns = 1.0\n")

    made = find_machine(str(path))

    assert (made.cpus, made.nodes, made.name) == (4, 2, "box")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpus = 4\ncores = 4", "'cores': known are"),
        ("nodes = 1", "no cpus"),
        ("cpus = [", "box.toml"),
        ("cpus = 0", "cpus is 0"),
    ],
)
def test_a_wrong_machine_file_is_named_with_what_is_wrong(tmp_path, text, words):
    path = tmp_path / "box.toml"
    path.write_text(text)

    with pytest.raises(slabq.ParameterError) as caught:
        find_machine(path)

    assert "box.toml" in str(caught.value)
    assert words in str(caught.value)


CLASSES = {
    cls.name: cls for cls in (slabq.Slab, slabq.Slub, slabq.SlubQ, slabq.Sheaves)
}


@pytest.mark.parametrize("policy", policy_names())
def test_the_fields_of_a_policy_are_the_cores_options(policy):
    fields = [field.name for field in dataclasses.fields(CLASSES[policy])]

    assert fields == [
        "kernel",
        *(row[1] for row in _core.options() if row[0] == policy),
    ]


@pytest.mark.parametrize("policy", policy_names())
def test_every_kernel_profile_sets_options_that_the_core_accepts(policy):
    assert kernel_profiles(policy), f"{policy} has no kernel profile"
    for kernel in kernel_profiles(policy):
        values = find_policy(policy, kernel=kernel).values()

        _core.geometry(
            slabq.Machine(cpus=2).core(), policy, list(values.items()), 64, 0, 0, 0
        )


NEWEST = {"slab": "6.1", "slub": "6.18", "slub+q": "2.6.35", "sheaves": "6.18"}


@pytest.mark.parametrize("policy", policy_names())
def test_a_policy_without_a_kernel_takes_the_newest_that_has_it(policy):
    assert find_policy(policy).kernel == NEWEST[policy]


def test_a_given_option_comes_before_the_profile_and_the_profile_before_the_default():
    own = find_policy("slab", kernel="2.6.24", objfreelist=True).values()
    profile = find_policy("slab", kernel="2.6.24").values()
    newest = find_policy("slab", kernel="6.1").values()

    assert (own["objfreelist"], profile["objfreelist"], newest["objfreelist"]) == (
        1,
        0,
        1,
    )


def test_kernel_releases_sort_by_number():
    releases = ["6.18", "2.6.35", "5.14-rt", "6.1", "5.15", "2.6.4"]

    ordered = sorted(releases, key=version_key)

    assert ordered == ["2.6.4", "2.6.35", "5.14-rt", "5.15", "6.1", "6.18"]


def test_a_policy_value_with_another_kernel_is_a_contradiction():
    with pytest.raises(slabq.ParameterError, match="accepted is one of them"):
        find_policy(slabq.Slab(kernel="6.1"), kernel="2.6.35")


def test_a_policy_that_this_build_does_not_have_is_told_in_one_line():
    missing = [name for name in CLASSES if name not in policy_names()]

    for name in missing:
        with pytest.raises(slabq.ParameterError) as caught:
            CLASSES[name]()
        assert f"unknown policy '{name}': known are" in str(caught.value)


@pytest.mark.parametrize("word", ["true", "Yes", "on", "1", True, 1])
def test_a_switch_is_on_by_any_of_its_words(word):
    assert require_switch("x", word) is True


def test_a_workload_fills_in_its_defaults():
    work = Workload("hackbench", {"groups": 2})

    assert work.parameters["groups"] == 2
    assert work.parameters["fds"] == 20
    assert set(work.parameters) == set(workload_kinds()["hackbench"].parameters)


def test_hackbench_modes_are_words_and_numbers_for_the_core():
    assert dict(find_workload("hackbench", mode="process").numbers())["mode"] == 0
    assert dict(find_workload("hackbench", mode="thread").numbers())["mode"] == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {}),
        (["100"], {"groups": 100}),
        (["100", "process", "2000"], {"groups": 100, "mode": "process", "loops": 2000}),
        (["10", "thread"], {"groups": 10, "mode": "thread"}),
    ],
)
def test_the_old_form_of_hackbench_is_read(words, found):
    assert parse_old_hackbench(words) == found


@pytest.mark.parametrize("data", [3, None, "x", [1]])
def test_what_is_written_must_be_bytes(data):
    allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
    cache = allocator.create_cache("example", 64, poison=True)
    address = cache.alloc()
    with pytest.raises(slabq.ParameterError, match=r"data is .*: accepted are bytes"):
        allocator.poke(address, 0, data)
    with pytest.raises(slabq.ParameterError, match=r"data is .*: accepted are bytes"):
        allocator.write(address, data)


def test_an_executor_must_be_one():
    with pytest.raises(slabq.ParameterError, match=r"executor is 3: accepted is one"):
        slabq.sweep("hackbench", policy="slab", groups=1, loops=1, executor=3)
