"""Debug caches of SLUB+Q: SLUB's checks where there are queues and no free pointers."""

import contextlib
import random
import re

import pytest
from debug_use import use_soundly

import slabq

MIB = 1 << 20
ALL = dict.fromkeys(("red_zone", "poison", "store_user"), True)


@pytest.fixture(params=[1, 2, 3, 4])
def version(request):
    return request.param


def make_allocator(version, cpus=1, nodes=1, **options):
    machine = slabq.Machine(cpus=cpus, nodes=nodes, node_bytes=64 * MIB)
    return slabq.Allocator("slub+q", machine=machine, version=version, **options)


@pytest.fixture
def allocator(version):
    return make_allocator(version)


def free_object(cache):
    """Return a free object that the CPU hands out next."""
    cache.alloc()
    address = cache.alloc()
    cache.free(address)
    return address


@pytest.mark.parametrize(
    ("size", "flags", "slot"),
    [
        (40, {}, 40),
        (40, {"poison": True}, 40),
        (40, {"red_zone": True}, 40 + 8 + 8),
        (36, {"red_zone": True}, 40 + 8),  # the zone fits before the next word
        (40, {"store_user": True}, 40 + 2 * 24),
        (40, ALL, 40 + 8 + 48 + 8),
    ],
)
def test_metadata_follows_the_object_without_a_free_pointer(
    allocator, size, flags, slot
):
    assert allocator.create_cache("slot", size, **flags).slab_size == slot


def test_red_zones_tell_use_from_rest_and_in_v4_from_queues(allocator, version):
    cache = allocator.create_cache("red", 40, red_zone=True)
    address = cache.alloc()
    assert allocator.peek(address, 40, 8) == b"\xcc" * 8
    cache.free(address)
    assert allocator.peek(address, 40, 8) == (b"\xdd" if version == 4 else b"\xbb") * 8
    cache.alloc()
    cache.shrink()
    in_slab = next(
        at
        for at in (address + cache.slab_size, address - cache.slab_size)
        if at >= address & ~0xFFF
    )
    assert allocator.peek(in_slab, 40, 8) == b"\xbb" * 8
    assert allocator.reports == []


def test_a_double_free_is_told_and_frees_nothing(allocator):
    cache = allocator.create_cache("double", 64, **ALL)
    address = free_object(cache)
    cache.free(address)
    cache.shrink()
    cache.free(address)

    assert [one.what for one in allocator.reports] == ["Object already free"] * 2
    assert f"FIX double: Object at 0x{address:016x} not freed" in (
        allocator.reports[0].text
    )
    allocator.check()
    assert len({cache.alloc() for _ in range(200)}) == 200


@pytest.mark.parametrize(
    ("offset", "what"), [(64, "Redzone overwritten"), (3, "Poison overwritten")]
)
def test_a_free_object_that_was_written_to_is_passed_over(allocator, offset, what):
    cache = allocator.create_cache("after", 64, **ALL)
    address = free_object(cache)
    allocator.poke(address, offset, b"\x11")

    others = {cache.alloc() for _ in range(100)}

    (report,) = allocator.reports
    assert report.what == what
    assert report.offset == (address & 0xFFF) + offset
    assert address not in others
    allocator.check()


def test_an_object_with_an_overwritten_zone_is_not_freed_before_it_is_mended(allocator):
    cache = allocator.create_cache("over", 64, **ALL)
    cache.alloc()
    address = cache.alloc()
    allocator.poke(address, 64, b"\0\0")
    cache.free(address)
    assert allocator.live_count() == 2
    cache.free(address)

    assert [one.fixes for one in allocator.reports] == [2]
    assert allocator.live_count() == 1
    allocator.check()


def test_a_write_while_an_object_goes_from_slab_to_queue_is_not_lost(allocator):
    cache = allocator.create_cache("moving", 64, red_zone=True)
    first, second = sorted(cache.alloc_bulk(2))
    cache.free(first)
    cache.shrink()
    allocator.poke(first, 64, b"\x11")
    live = [cache.alloc() for _ in range(100)]

    (report,) = allocator.reports
    assert report.what == "Redzone overwritten"
    assert "0x11 instead of" in report.text
    assert first not in live
    assert second not in live


def test_objects_without_a_red_zone_end_where_memory_may_end(version):
    machine = slabq.Machine(cpus=1, node_bytes=4 * MIB)
    allocator = slabq.Allocator("slub+q", machine=machine, version=version)
    cache = allocator.create_cache("end", 2048, consistency_checks=True)
    live = []
    with pytest.raises(slabq.OutOfMemory):
        while len(live) < 4096:
            live.append(cache.alloc())

    for address in live:
        cache.free(address)

    assert cache.validate() == []
    assert allocator.reports == []


def test_wrong_addresses_are_told_and_refused(allocator):
    one = allocator.create_cache("one", 64, **ALL)
    other = allocator.create_cache("other", 64, **ALL)
    address = one.alloc()
    one.free(address + 8)
    other.free(address)

    whats = [report.what for report in allocator.reports]
    assert whats[0].startswith("Invalid object pointer")
    assert whats[1] == "page slab pointer corrupt."
    assert allocator.live_count() == 1


def test_validate_finds_all_of_it_once(allocator):
    cache = allocator.create_cache("all", 64, **ALL)
    objects = cache.alloc_bulk(3)
    cache.free(objects[2])
    allocator.poke(objects[0], 64, b"\0")
    allocator.poke(objects[2], 1, b"\0")

    assert sorted(one.what for one in cache.validate()) == [
        "Poison overwritten",
        "Redzone overwritten",
    ]
    assert cache.validate() == []


def test_a_report_has_the_lines_of_2_6(allocator):
    cache = allocator.create_cache("form", 64, red_zone=True, store_user=True)
    address = cache.alloc(site=41)
    allocator.poke(address, 64, b"\x12")
    cache.validate()

    patterns = [
        r"={77}",
        r"BUG form: Redzone overwritten",
        r"-{77}",
        r"",
        r"INFO: 0x\w{16}-0x\w{16}\. First byte 0x12 instead of 0xcc",
        r"INFO: Allocated in site_41 age=\d+ cpu=0 pid=0",
        r"INFO: Slab 0x\w{16} objects=\d+ used=\d+",
        r"INFO: Object 0x\w{16} @offset=\d+",
        r"",
        *4 * [r"  Object 0x\w{16}: ( \w\w){16} .{16}"],
        r" Redzone 0x\w{16}:  12( cc){7} {24} \.{8} {8}",
        r" Padding 0x\w{16}: ( \w\w){8} {24} .{16}",
        r"FIX form: Restoring 0x(\w{16})-0x\1=0xcc",
    ]
    told = allocator.reports[0].text.splitlines()
    assert len(told) == len(patterns), told
    for line, pattern in zip(told, patterns, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.parametrize("flags", [ALL, {"poison": True}, {"red_zone": True}])
def test_sound_use_is_never_told(version, flags):
    for size in (8, 24, 64, 200, 700, 3000):
        allocator = make_allocator(version, cpus=4, nodes=2, debug="FZPU")
        use_soundly(allocator, size, flags)
        assert allocator.reports == []


@pytest.mark.parametrize("flags", [ALL, {"poison": True}, {"red_zone": True}])
def test_random_writes_never_stop_a_debug_cache(version, flags):
    for seed in range(4):
        draw = random.Random(seed)
        allocator = make_allocator(version, cpus=2)
        cache = allocator.create_cache("wild", draw.choice([8, 40, 64, 700]), **flags)
        seen = [cache.alloc()]
        live = list(seen)
        for _ in range(250):
            cpu = draw.randrange(2)
            match draw.randrange(6):
                case 0 | 1:
                    live.append(cache.alloc(cpu=cpu))
                    seen.append(live[-1])
                case 2 if live:
                    address = live.pop(draw.randrange(len(live)))
                    before = len(allocator.reports)
                    cache.free(address, cpu=cpu)
                    if len(allocator.reports) > before:
                        live.append(address)
                        break
                case 3:
                    page = draw.choice(seen) & ~0xFFF
                    data = draw.randbytes(draw.choice([1, 8]))
                    with contextlib.suppress(slabq.ParameterError):
                        allocator.poke(page, draw.randrange(4088), data)
                case 4:
                    cache.validate() if draw.random() < 0.2 else cache.shrink()
                case 5:  # a mistake, told or refused
                    with contextlib.suppress(slabq.CorruptionError):
                        wrong = draw.choice([*seen, draw.choice(seen) + 8])
                        if wrong not in live:
                            cache.free(wrong, cpu=cpu)
            allocator.check()
        assert len(set(live)) == len(live)
        for _ in range(400):
            if not cache.validate():
                break
        assert cache.validate() == []
        cache.destroy()
