"""Debug caches: what is found, how it is told, and that nothing goes on to crash.

The numbers of errors of the kernel's own test cases (lib/slub_kunit.c) are those that
it expects; a report and each of its FIX lines count as one.
"""

import contextlib
import itertools
import random
import re

import pytest

import slabq

MIB = 1 << 20
ERAS = ("2.6.35", "3.16", "4.19", "5.15", "6.1", "6.18")
OLD_FORM = ("2.6.35", "3.16", "4.19")
CHECKS = dict.fromkeys(("red_zone", "poison", "store_user", "consistency_checks"), True)


def make_allocator(kernel="6.18", cpus=1, policy="slub", **options):
    machine = slabq.Machine(cpus=cpus, node_bytes=64 * MIB)
    options.setdefault("slub_debug", True)  # 2.6 was recorded without CONFIG_SLUB_DEBUG
    return slabq.Allocator(policy, machine=machine, kernel=kernel, **options)


def error_count(allocator):
    return sum(1 + report.fixes for report in allocator.reports)


def free_object(cache):
    """Return a free object of a slab that has another in use, and so stays."""
    cache.alloc()
    address = cache.alloc()
    cache.free(address)
    return address


@pytest.fixture(params=ERAS)
def allocator(request):
    return make_allocator(request.param)


def is_old(allocator):
    return allocator.policy.kernel in OLD_FORM


# -- the cases of slub_kunit ----------------------------------------------------------
def test_a_write_past_an_object_in_use_is_found_and_mended_once(allocator):
    cache = allocator.create_cache("zone", 64, red_zone=True)
    address = cache.alloc()
    allocator.poke(address, 64, b"\x12")

    findings = cache.validate()

    part = "Redzone" if is_old(allocator) else "Right Redzone"
    assert [one.what for one in findings] == [f"{part} overwritten"]
    assert error_count(allocator) == 2
    assert allocator.peek(address, 64, 1) == b"\xcc"
    assert cache.validate() == []
    cache.free(address)


def test_a_corrupt_free_pointer_ends_the_list_and_the_count_follows(allocator):
    cache = allocator.create_cache("next_pointer", 64, poison=True)
    address = free_object(cache)
    offset = cache.geometry()["fp_offset"]
    pointer = allocator.peek(address, offset, 8)
    allocator.poke(address, offset, bytes([pointer[0] ^ 0xFF]))

    assert [one.what[:18] for one in cache.validate()] == [
        "Freechain corrupt",
        "Wrong object count",
    ]
    assert error_count(allocator) == 3
    allocator.clear_reports()
    allocator.poke(address, offset, pointer)
    assert [one.what[:18] for one in cache.validate()] == ["Wrong object count"]
    assert error_count(allocator) == 2
    assert cache.validate() == []


@pytest.mark.parametrize("offset", [0, 49], ids=["first word", "50th byte"])
def test_a_write_after_free_is_found_where_it_is(allocator, offset):
    cache = allocator.create_cache("poison", 64, poison=True)
    address = free_object(cache)
    index = (address - (address & ~0xFFF)) // cache.slab_size
    allocator.poke(address, offset, b"\x78")

    (finding,) = cache.validate()

    assert finding.what == "Poison overwritten"
    assert (finding.slab, finding.object_index) == (0, index)
    assert finding.offset == index * cache.slab_size + offset
    assert error_count(allocator) == 2
    assert cache.validate() == []


def test_a_write_past_a_free_object_is_found(allocator):
    cache = allocator.create_cache("zone_free", 64, red_zone=True)
    address = free_object(cache)
    allocator.poke(address, 64, b"\xab")

    assert len(cache.validate()) == 1
    assert error_count(allocator) == 2
    assert allocator.peek(address, 64, 1) == b"\xbb"


@pytest.mark.parametrize(("kernel", "found"), [("6.18", 1), ("6.1", 1), ("5.15", 0)])
def test_a_write_past_the_size_asked_of_kmalloc_is_found_since_6_1(kernel, found):
    allocator = make_allocator(kernel, debug="FZU,kmalloc-*")
    address = allocator.kmalloc(18)
    assert allocator.ksize(address) >= 32
    allocator.poke(address, 18, b"\xab\xab")
    allocator.kfree(address)

    whats = [report.what for report in allocator.reports]
    assert whats == ["kmalloc Redzone overwritten"] * found


# -- the kernel's moments -------------------------------------------------------------
def test_a_double_free_is_told_and_frees_nothing(allocator):
    cache = allocator.create_cache("double", 64, **CHECKS)
    address = free_object(cache)
    before = cache.snapshot()["nodes"]
    cache.free(address)

    (report,) = allocator.reports
    assert report.what == "Object already free"
    assert f"FIX double: Object at 0x{address:016x} not freed" in report.text
    assert cache.snapshot()["nodes"] == before
    allocator.check()


def test_an_object_corrupted_while_free_takes_its_slab_out_of_use(allocator):
    cache = allocator.create_cache("use_after_free", 64, **CHECKS)
    address = free_object(cache)
    slab = address & ~0xFFF
    allocator.poke(address, 3, b"x")
    others = [cache.alloc() for _ in range(3 * cache.objs_per_slab)]

    assert allocator.reports[0].what == "Poison overwritten"
    assert "Marking all objects used" in allocator.reports[0].text
    assert len(allocator.reports) == 1
    assert address not in others
    assert slab not in {other & ~0xFFF for other in others if other > address}
    for other in others:
        cache.free(other)
    cache.check()


def test_an_object_corrupted_while_in_use_is_not_freed(allocator):
    cache = allocator.create_cache("overflow", 64, **CHECKS)
    cache.alloc()
    address = cache.alloc()
    allocator.poke(address, 64, b"\0\0")
    cache.free(address)
    cache.free(address)  # mended meanwhile

    assert [report.fixes for report in allocator.reports] == [2]
    assert allocator.live_count() == 1


@pytest.mark.parametrize("kernel", ["4.19", "6.18"])
def test_a_write_before_an_object_is_found_since_4_6(kernel):
    allocator = make_allocator(kernel)
    cache = allocator.create_cache("underflow", 64, **CHECKS)
    address = cache.alloc()
    allocator.poke(address, -1, b"\0")
    cache.free(address)

    part = "Redzone" if kernel == "4.19" else "Left Redzone"
    assert allocator.reports[0].what == f"{part} overwritten"


def test_a_pointer_into_an_object_is_not_freed(allocator):
    cache = allocator.create_cache("inside", 64, **CHECKS)
    address = cache.alloc()
    cache.free(address + 8)

    assert allocator.reports[0].what.startswith("Invalid object pointer")
    assert allocator.live_count() == 1


def test_an_object_of_another_cache_is_told(allocator):
    one = allocator.create_cache("one", 64, **CHECKS)
    other = allocator.create_cache("other", 64, **CHECKS)
    address = one.alloc()
    other.free(address)

    is_refused = allocator.policy.kernel in ("2.6.35", "3.16")
    assert allocator.reports[0].cache == "other"
    assert ("Wrong slab cache" in allocator.reports[0].what) == (not is_refused)
    assert allocator.live_count() == int(is_refused)
    allocator.check()


def test_pages_are_no_objects(allocator):
    cache = allocator.create_cache("pages", 64, **CHECKS)
    cache.free(allocator.kmalloc(1 << 20))

    assert "outside of slab" in allocator.reports[0].what
    assert allocator.live_count() == 1


def test_the_rest_of_a_slab_is_guarded(allocator):
    cache = allocator.create_cache("rest", 720, poison=True)
    address = cache.alloc() & ~0xFFF
    slab_bytes = 4096 << cache.order
    assert cache.objs_per_slab * cache.slab_size < slab_bytes
    allocator.poke(address, slab_bytes - 1, b"\0")

    (finding,) = cache.validate()
    assert finding.what.startswith("Padding overwritten.")
    assert finding.offset == slab_bytes - 1


def test_tracks_name_the_call_sites(allocator):
    cache = allocator.create_cache("tracks", 64, **CHECKS)
    cache.alloc(site=1)
    address = cache.alloc(site=41)
    cache.free(address, site=42)
    cache.free(address, site=43)

    (report,) = allocator.reports
    assert re.search(r"Allocated in site_41 age=\d+ cpu=0 pid=0\n", report.text)
    assert re.search(r"Freed in site_42 age=\d+ cpu=0 pid=0\n", report.text)


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        (
            "2.6.35",
            [
                r"={77}",
                r"BUG form: Redzone overwritten",
                r"-{77}",
                r"",
                r"INFO: 0x\w{16}-0x\w{16}\. First byte 0x12 instead of 0xcc",
                r"INFO: Slab 0x\w{16} objects=\d+ used=1 fp=0x\w{16} flags=0x0000",
                r"INFO: Object 0x\w{16} @offset=0 fp=0x\w{16}",
                r"",
                *4 * [r"  Object 0x\w{16}: ( \w\w){16} .{16}"],
                r" Redzone 0x\w{16}:  12( cc){7} {24} \.{8} {8}",
                r" Padding 0x\w{16}: ( \w\w){8} {24} .{16}",
                r"FIX form: Restoring 0x(\w{16})-0x\1=0xcc",
            ],
        ),
        (
            "6.18",
            [
                r"\[Right Redzone overwritten\] 0x\w{16}-0x\w{16} @offset=72\. First "
                r"byte 0x12 instead of 0xcc",
                r"={77}",
                r"BUG form \(Not tainted\): Object corrupt",
                r"-{77}",
                r"",
                r"Slab 0x\w{16} objects=\d+ used=1 fp=0x\w{16} flags=0x0000",
                r"Object 0x\w{16} @offset=8 fp=0x\w{16}",
                r"",
                r"Redzone  \w{16}:( cc){8} {26}\.{8}",
                *4 * [r"Object   \w{16}:( \w\w){16}  .{16}"],
                r"Redzone  \w{16}: 12( cc){7} {26}\.{8}",
                r"Padding  \w{16}:( \w\w){8} {26}.{8}",
                r"FIX form: Restoring Right Redzone 0x(\w{16})-0x\1=0xcc",
            ],
        ),
    ],
)
def test_a_report_has_the_form_of_its_time(kernel, lines):
    allocator = make_allocator(kernel)
    cache = allocator.create_cache("form", 64, red_zone=True)
    allocator.poke(cache.alloc(), 64, b"\x12")
    cache.validate()

    told = allocator.reports[0].text.splitlines()

    assert len(told) == len(lines)
    for line, pattern in zip(told, lines, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_a_panic_ends_the_call_that_reported():
    allocator = make_allocator(panic_on_report=True)
    cache = allocator.create_cache("panic", 64, **CHECKS)
    address = cache.alloc()
    cache.free(address)
    with pytest.raises(slabq.CorruptionError, match="already free"):
        cache.free(address)
    cache.free(cache.alloc())


def test_a_traced_cache_tells_every_call():
    allocator = make_allocator()
    cache = allocator.create_cache("traced", 64, trace=True)
    address = cache.alloc()
    cache.free(address)

    assert [line.split()[:4] for line in allocator.trace_lines] == [
        ["TRACE", "traced", "alloc", f"0x{address:016x}"],
        ["TRACE", "traced", "free", f"0x{address:016x}"],
    ]


@pytest.mark.parametrize("size", [1, 4, 7, 8])
def test_objects_smaller_than_a_pointer_keep_it_out_of_their_red_zone(allocator, size):
    cache = allocator.create_cache("tiny", size, red_zone=True, consistency_checks=True)
    live = cache.alloc_bulk(20)
    for address in live:
        allocator.write(address, bytes(size))
    cache.free_bulk(live)
    allocator.check()

    assert cache.validate() == []
    assert allocator.reports == []


# -- slub_debug= ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Z,one", {"one"}),
        ("Z,on*", {"one", "only"}),
        ("Z", {"one", "only", "two"}),
        ("-,two;Z", {"one", "only"}),
        ("F,two;P,one", set()),
    ],
)
def test_boot_flags_meet_the_caches_they_name(text, names):
    allocator = make_allocator(debug=text)
    caches = [allocator.create_cache(name, 64) for name in ("one", "only", "two")]

    assert {cache.name for cache in caches if cache.red_zone} == names


@pytest.mark.parametrize("text", ["Q", "FZ!", "Z" * 128])
def test_other_boot_flags_are_refused(text):
    with pytest.raises(slabq.ParameterError, match="debug is"):
        make_allocator(debug=text)


def test_only_debug_caches_can_be_corrupted(allocator):
    cache = allocator.create_cache("plain", 64)
    address = cache.alloc()
    with pytest.raises(slabq.ParameterError, match="caches with debug flags"):
        allocator.poke(address, 0, b"x")
    with pytest.raises(slabq.ParameterError, match="in no slab"):
        allocator.peek(0, 0, 1)
    with pytest.raises(slabq.ParameterError, match="from offset"):
        allocator.peek(address, 0, 1 << 16)
    assert cache.validate() == []


# -- hardening ------------------------------------------------------------------------
def orders(seed, **options):
    allocator = make_allocator(seed=seed, **options)
    cache = allocator.create_cache("order", 64)
    count = cache.objs_per_slab
    places = [cache.locate(cache.alloc()) for _ in range(3 * count)]
    return [[p.object_index for p in places if p.slab == n] for n in range(3)]


def test_random_order_is_one_permutation_begun_anywhere():
    slabs = orders(1, freelist_random=True)
    doubled = slabs[0] * 2
    for slab in slabs:
        assert sorted(slab) == list(range(len(slab)))
        begin = doubled.index(slab[0])
        assert doubled[begin : begin + len(slab)] == slab
    assert slabs[0] != sorted(slabs[0])
    assert orders(1, freelist_random=True) == slabs
    assert orders(2, freelist_random=True) != slabs
    assert orders(1)[0] == sorted(slabs[0])


def test_slabs_of_one_object_are_not_shuffled():
    allocator = make_allocator(freelist_random=True)
    cache = allocator.create_cache("single", 4 * MIB)
    assert cache.locate(cache.alloc()).object_index == 0


@pytest.mark.parametrize("size", [64, 192, 1000, 2048])
def test_slab_shuffles_where_its_indexes_lie_in_a_stack(size):
    machine = slabq.Machine(cpus=1, node_bytes=64 * MIB)

    def order(**options):
        allocator = slabq.Allocator("slab", machine=machine, **options)
        cache = allocator.create_cache("order", size)
        count = cache.objs_per_slab
        places = [cache.locate(cache.alloc()) for _ in range(4 * count)]
        allocator.check()
        found = [[p.object_index for p in places if p.slab == n] for n in range(4)]
        return found, count

    shuffled, count = order(freelist_random=True)
    assert all(len(set(slab)) == len(slab) for slab in shuffled)
    assert sorted(shuffled[0]) == list(range(count))
    if count > 4:
        assert shuffled != order()[0]


@pytest.mark.parametrize(("value", "swaps"), [(1, True), (2, False)])
def test_hardened_free_pointers_are_disguised_as_the_release_does(value, swaps):
    allocator = make_allocator(freelist_hardened=value)
    cache = allocator.create_cache("hard", 64)
    objects = sorted(cache.alloc_bulk(cache.objs_per_slab))
    offset = cache.geometry()["fp_offset"]
    for address in objects:
        cache.free(address)  # each leads to the one before
    keys = set()
    for before, address in itertools.pairwise(objects):
        stored = int.from_bytes(allocator.peek(address, offset, 8), "little")
        slot = (address + offset).to_bytes(8, "little")
        keys.add(stored ^ before ^ int.from_bytes(slot, "big" if swaps else "little"))
    assert len(keys) == 1
    assert keys != {0}
    allocator.check()


@pytest.mark.parametrize("kernel", ERAS)
def test_hardening_changes_no_order(kernel):
    def run(**options):
        allocator = make_allocator(kernel, cpus=2, **options)
        cache = allocator.create_cache("same", 64)
        draw = random.Random(5)
        live, out = [], []
        for _ in range(600):
            if live and draw.random() < 0.48:
                cache.free(live.pop(draw.randrange(len(live))), cpu=draw.randrange(2))
            else:
                live.append(cache.alloc(cpu=draw.randrange(2)))
                out.append(cache.locate(live[-1]))
        allocator.check()
        return out, cache.stats()

    assert run() == run(freelist_hardened=1) == run(freelist_hardened=2)


def test_a_naive_double_free_of_a_hardened_cache_is_noted():
    allocator = make_allocator(freelist_hardened=1)
    cache = allocator.create_cache("naive", 64)
    address = cache.alloc()
    cache.free(address)
    with pytest.raises(slabq.CorruptionError, match="free already"):
        cache.free(address)
    assert "object == fp" in allocator.reports[0].what


# -- whatever is written, the run goes on ---------------------------------------------
FLAG_SETS = [
    {"red_zone": True},
    {"poison": True},
    {"store_user": True},
    {"consistency_checks": True},
    CHECKS,
]


@pytest.mark.parametrize("policy", ["slub", "sheaves"])
@pytest.mark.parametrize("flags", FLAG_SETS, ids=lambda flags: "+".join(flags))
def test_random_writes_never_stop_a_debug_cache(policy, flags):
    for kernel in ERAS if policy == "slub" else ["6.18"]:
        for seed in range(3):
            draw = random.Random(seed)
            allocator = make_allocator(kernel, cpus=2, policy=policy)
            cache = allocator.create_cache(
                "wild", draw.choice([8, 40, 64, 700]), **flags
            )
            seen = [cache.alloc()]
            live = list(seen)
            for _ in range(250):
                cpu = draw.randrange(2)
                match draw.randrange(5):
                    case 0 | 1:
                        live.append(cache.alloc(cpu=cpu))
                        seen.append(live[-1])
                    case 2 if live:
                        address = live.pop(draw.randrange(len(live)))
                        # it may have been handed out twice: the free list was corrupt
                        with contextlib.suppress(slabq.CorruptionError):
                            cache.free(address, cpu=cpu)
                    case 3:
                        page = draw.choice(seen) & ~0xFFF
                        data = draw.randbytes(draw.choice([1, 8]))
                        with contextlib.suppress(slabq.ParameterError):  # slab gone
                            allocator.poke(page, draw.randrange(4088), data)
                    case 4:
                        cache.validate() if draw.random() < 0.2 else cache.shrink()
            for _ in range(600):  # a call mends an object of each slab, or more
                if all(one.slab is None for one in cache.validate()):
                    break
            else:
                pytest.fail(f"never mended: {cache.validate()}")
            cache.destroy()
