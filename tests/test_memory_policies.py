"""Memory policies: which node an object comes from, and what falls back."""

import pytest
from every_kernel import KERNELS, MIB, POLICIES, machine, make

import slabq
from slabq.memory_policy import find_memory_policy

HONOURING = [kernel for kernel in KERNELS if kernel[2].get("version") != 4]


@pytest.fixture(params=HONOURING, ids=lambda k: f"{k[0]}-{k[1]}-{k[2]}")
def four_nodes(request):
    name, kernel, options = request.param
    return slabq.Allocator(
        name,
        machine=machine(8, 4, 8 * MIB),
        kernel=kernel,
        slab_nomerge=True,
        **options,
    )


def nodes_of(allocator, addresses):
    return [allocator.node_of(address) for address in addresses]


def test_local_memory_is_near_the_cpu(four_nodes):
    cache = four_nodes.create_cache("example", 64)
    found = [cache.alloc(cpu=cpu, policy="local") for cpu in range(8)]

    assert nodes_of(four_nodes, found) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_interleaving_takes_the_nodes_in_turn(four_nodes):
    cache = four_nodes.create_cache("example", 64)
    four_nodes.memory_policy = slabq.MemoryPolicy.interleave([0, 2, 3])

    found = [cache.alloc(cpu=index % 8) for index in range(30)]
    found += [four_nodes.kmalloc(100) for _ in range(6)]

    assert nodes_of(four_nodes, found) == [0, 2, 3] * 12
    four_nodes.check()


def test_bulk_calls_obey_the_memory_policy_too(four_nodes):
    cache = four_nodes.create_cache("example", 64)
    near = four_nodes.create_cache("near", 64).alloc_bulk(6, cpu=7)
    assert nodes_of(four_nodes, near) == [3] * 6
    four_nodes.memory_policy = slabq.MemoryPolicy.interleave([0, 2, 3])

    turns = cache.alloc_bulk(9, cpu=7)
    bound = cache.alloc_bulk(5, cpu=0, policy="bind:1")

    assert nodes_of(four_nodes, turns) == [0, 2, 3] * 3
    assert nodes_of(four_nodes, bound) == [1] * 5
    cache.free_bulk(turns + bound)
    four_nodes.check()


def test_a_bulk_call_that_a_policy_cannot_serve_gives_nothing(four_nodes):
    cache = four_nodes.create_cache("example", 4096)
    with pytest.raises(slabq.OutOfMemory):
        cache.alloc_bulk(5000, policy="bind:1")

    assert four_nodes.live_count() == 0
    four_nodes.check()


def test_a_preferred_node_comes_first_and_others_when_it_is_full(four_nodes):
    cache = four_nodes.create_cache("example", 4096)
    four_nodes.memory_policy = "preferred:2"
    found = nodes_of(four_nodes, [cache.alloc(cpu=0) for _ in range(2200)])

    assert set(found[:1000]) == {2}
    assert set(found) > {2}
    four_nodes.check()


def test_bound_memory_never_comes_from_another_node(four_nodes):
    cache = four_nodes.create_cache("example", 4096)
    cache.free_bulk(cache.alloc_bulk(50, cpu=0), cpu=0)  # objects near the CPU
    four_nodes.memory_policy = "bind:1,3"
    found = []
    with pytest.raises(slabq.OutOfMemory):
        while len(found) < 8000:
            found.append(cache.alloc(cpu=0))

    assert set(nodes_of(four_nodes, found)) == {1, 3}
    assert four_nodes.node_of(found[0]) == 1  # as near to node 0 as 3, and before it
    assert four_nodes.node_of(cache.alloc(cpu=0, policy="local")) == 0
    four_nodes.check()


def test_slab_takes_a_policys_remote_objects_by_the_node_path():
    allocator = slabq.Allocator(
        "slab", machine=machine(), kernel="6.1", memory_policy="preferred:1"
    )
    cache = allocator.create_cache("example", 64)
    for _ in range(10):
        cache.alloc(cpu=0)
    remote = cache.stats()
    for _ in range(10):
        cache.alloc(cpu=4)
    local = cache.stats()

    # The first object of a new slab goes uncounted (6.1); the arrays are not used.
    assert (remote["node_allocs"], remote["allocmiss"]) == (9, 0)
    assert (local["node_allocs"], local["allocmiss"], local["allochit"]) == (9, 1, 9)


def test_a_node_named_by_the_call_comes_before_the_policy(four_nodes):
    cache = four_nodes.create_cache("example", 64)
    four_nodes.memory_policy = "bind:3"

    assert four_nodes.node_of(cache.alloc(cpu=0, node=1)) == 1
    assert four_nodes.node_of(four_nodes.kmalloc(9, cpu=0, node=2)) == 2


def test_splusq_v4_ignores_policies_as_it_ignores_nodes():
    allocator = slabq.Allocator("slub+q", machine=machine(), version=4)
    allocator.memory_policy = "preferred:1"

    assert allocator.node_of(allocator.kmalloc(64, cpu=0)) == 0


@pytest.mark.parametrize(
    "value",
    ["near", "preferred", "preferred:0,1", "local:0", "bind:9", "bind:a", "bind:", 3],
)
def test_a_memory_policy_that_cannot_be_is_refused(value):
    allocator = make("slub", "6.1")
    cache = allocator.create_cache("example", 64)
    with pytest.raises(slabq.ParameterError):
        allocator.memory_policy = value
    with pytest.raises(slabq.ParameterError):
        cache.alloc(policy=value)

    assert allocator.memory_policy == slabq.MemoryPolicy.local()


def test_a_call_names_a_node_or_a_policy():
    cache = make("slub", "6.1").create_cache("example", 64)
    with pytest.raises(slabq.ParameterError, match="accepted is one of them"):
        cache.alloc(node=0, policy="local")


def test_a_memory_policy_reads_as_it_is_written():
    assert find_memory_policy("interleave:0-2,5").nodes == (0, 1, 2, 5)


def churn(policy, size, **parameters):
    """Four tasks with 600 objects each: of a page, more than one node's memory."""
    return slabq.run(
        "churn",
        policy=policy,
        machine=machine(4, 2, 8 * MIB),
        engine="native",
        **{"tasks": 4, "slots": 600, "replacements": 10, "latency_interval": 0},
        **{"size_min": size, "size_max": size},
        **parameters,
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_workload_that_is_bound_has_the_memory_of_those_nodes_only(policy):
    for mode in range(4):
        assert churn(policy, 4096, memory_policy=mode).memory["peak_bytes"] > 8 * MIB
    for nodes in (1, 2):
        with pytest.raises(slabq.OutOfMemory, match="memory_nodes"):
            churn(policy, 4096, memory_policy=2, memory_nodes=nodes)
    with pytest.raises(slabq.ParameterError, match="memory_nodes is 8"):
        churn(policy, 64, memory_policy=2, memory_nodes=8)


def test_a_workload_that_interleaves_has_every_other_object_near():
    counters = churn("slab", 64, memory_policy=3).counters

    near = counters["allochit"] + counters["allocmiss"]
    assert abs(near - 4 * 610 // 2) <= 4  # each CPU begins with node 0
