"""SLAB's own debugging: the bytes of a slot, what is found in them, how it is told.

Sizes are those of facts 1.3, worked by hand: a red word of 8 bytes before and after the
object, a user word of 8 at the end. Reports have the lines that public reports of such
kernels show.
"""

import contextlib
import random
import re

import pytest
from debug_use import use_soundly

import slabq

MIB = 1 << 20
KERNELS = ("2.6.24", "2.6.35", "3.2", "4.19", "6.1")
CLASSIC = ("2.6.24", "2.6.35", "3.2")
ALL = dict.fromkeys(("red_zone", "poison", "store_user"), True)
INACTIVE = (0x09F911029D74E35B).to_bytes(8, "little")
ACTIVE = (0xD84156C5635688C0).to_bytes(8, "little")


def make_allocator(kernel="6.1", cpus=1, nodes=1, **options):
    machine = slabq.Machine(cpus=cpus, nodes=nodes, node_bytes=64 * MIB)
    return slabq.Allocator("slab", machine=machine, kernel=kernel, **options)


@pytest.fixture(params=KERNELS)
def kernel(request):
    return request.param


@pytest.fixture
def allocator(kernel):
    return make_allocator(kernel)


def is_classic(allocator):
    return allocator.policy.kernel in CLASSIC


def free_object(cache):
    """Return a free object that the CPU hands out next."""
    cache.alloc()
    address = cache.alloc()
    cache.free(address)
    return address


# -- the slot --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "flags", "slot"),
    [
        (40, {}, 40),
        (40, {"poison": True}, 40),
        (40, {"red_zone": True}, 56),
        (40, {"store_user": True}, 48),
        (40, ALL, 64),
        (33, ALL, 64),  # rounded up to a word first
        (1, ALL, 32),
        (1000, ALL, 1024),
    ],
)
def test_red_words_and_user_word_lengthen_the_slot(allocator, size, flags, slot):
    cache = allocator.create_cache("slot", size, **flags)

    assert cache.slab_size == slot
    first, second = sorted(cache.alloc_bulk(2))
    assert second - first == slot


def test_words_lie_around_the_object_and_say_whether_it_is_in_use(allocator):
    cache = allocator.create_cache("words", 40, **ALL)
    cache.alloc()
    address = cache.alloc(site=11)
    assert allocator.peek(address, -8, 8) == ACTIVE
    assert allocator.peek(address, 0, 48) == b"\x5a" * 39 + b"\xa5" + ACTIVE
    assert allocator.peek(address, 48, 8) == (11).to_bytes(8, "little")

    cache.free(address, site=12)

    assert allocator.peek(address, -8, 8) == INACTIVE
    assert allocator.peek(address, 0, 48) == b"\x6b" * 39 + b"\xa5" + INACTIVE
    assert allocator.peek(address, 48, 8) == (12).to_bytes(8, "little")
    assert allocator.reports == []


def test_alignment_above_a_word_leaves_no_red_zones(allocator):
    cache = allocator.create_cache("aligned", 64, align=16, **ALL)

    assert (cache.red_zone, cache.store_user, cache.poison) == (False, False, True)
    assert cache.slab_size == 64


def test_early_releases_give_up_the_line_for_red_zones_and_later_ones_these(allocator):
    cache = allocator.create_cache("filp", 440, hwcache_align=True, **ALL)

    assert cache.red_zone == is_classic(allocator)
    assert cache.slab_size == (464 if is_classic(allocator) else 448)


def test_objects_lie_as_far_apart_as_in_public_reports_of_4_x():
    allocator = make_allocator("4.19", debug="ZPU")
    cache = allocator.create_cache("filp", 440, hwcache_align=True)
    blocks = sorted(allocator.kmalloc(256) for _ in range(2))

    # filp start=...8040, len=440, next ...8200; kmalloc-256 start=...3900, next ...3a00
    assert cache.slab_size == 0x200 - 0x40
    assert blocks[1] - blocks[0] == 0xA00 - 0x900
    assert allocator.peek(blocks[0], 0, 256) == b"\x5a" * 255 + b"\xa5"


def test_objects_under_rcu_are_not_poisoned(allocator):
    cache = allocator.create_cache("rcu", 64, typesafe_by_rcu=True, **ALL)

    assert (cache.poison, cache.red_zone) == (False, True)


@pytest.mark.parametrize(("size", "place"), [(472, "on"), (488, "off"), (512, "on")])
def test_management_leaves_early_slabs_by_the_size_with_words(size, place):
    allocator = make_allocator("2.6.35")
    cache = allocator.create_cache("off", size, **ALL)

    # 496 is below an eighth of a page; 512 leaves nothing over; 536 leaves 344 bytes of
    # 4096, room for the management of 7 objects
    assert cache.geometry()["mgmt"] == place


def test_arrays_of_debug_caches_hold_at_most_32_objects(kernel):
    allocator = make_allocator(kernel, cpus=2)
    sizes = (64, 512, 2048, 8192)
    found = {
        size: tuple(
            allocator.create_cache(f"limit-{size}", size, poison=True).geometry()[name]
            for name in ("limit", "batchcount")
        )
        for size in sizes
    }

    assert found == {64: (32, 16), 512: (32, 16), 2048: (24, 12), 8192: (8, 4)}
    assert allocator.create_cache("plain", 64).geometry()["limit"] == 120


def test_slabinfo_shows_the_slot_and_what_fits_a_slab():
    allocator = make_allocator("2.6.35")
    allocator.create_cache("row", 40, **ALL).alloc()

    (row,) = (r for r in allocator.slabinfo().splitlines() if r.startswith("row "))

    # (4096 - 48) / (64 + 4) objects
    assert row.split()[3:6] == ["64", "59", "1"]
    assert "tunables   32   16" in row


# -- what is found ---------------------------------------------------------------------
def test_a_double_free_is_told_and_frees_nothing(allocator):
    cache = allocator.create_cache("double", 64, **ALL)
    address = free_object(cache)
    before = cache.snapshot()["nodes"]

    cache.free(address)

    (report,) = allocator.reports
    assert report.what == "double free detected"
    assert cache.snapshot()["nodes"] == before
    allocator.check()


@pytest.mark.parametrize("offset", [-8, -1, 64, 71])
def test_a_write_beside_an_object_in_use_is_told_at_its_free(allocator, offset):
    cache = allocator.create_cache("beside", 64, **ALL)
    cache.alloc()
    address = cache.alloc()
    allocator.poke(address, offset, b"\0")

    cache.free(address)

    (report,) = allocator.reports
    assert report.what == "memory outside object was overwritten"
    place = allocator.reports[0]
    assert place.offset == (address & 0xFFF) + offset
    assert allocator.live_count() == 1
    assert cache.alloc() == address  # it was freed all the same
    assert len(allocator.reports) == 1


@pytest.mark.parametrize("offset", [-8, 64])
def test_a_write_beside_a_free_object_is_told_when_it_is_handed_out(allocator, offset):
    cache = allocator.create_cache("zone", 64, red_zone=True)
    address = free_object(cache)
    allocator.poke(address, offset, b"\0")

    assert cache.alloc() == address

    (report,) = allocator.reports
    assert report.what == "double free, or memory outside object was overwritten"
    cache.free(address)
    assert len(allocator.reports) == 1


@pytest.mark.parametrize("offset", [0, 17, 62, 63])
def test_a_write_after_free_is_told_when_the_object_is_handed_out(allocator, offset):
    cache = allocator.create_cache("after", 64, **ALL)
    address = free_object(cache)
    allocator.poke(address, offset, b"\0")

    assert cache.alloc() == address

    (report,) = allocator.reports
    assert report.what == "Slab corruption"
    assert report.object_index == cache.locate(address).object_index
    assert report.offset == (address & 0xFFF) + offset
    assert allocator.peek(address, 0, 64) == b"\x5a" * 63 + b"\xa5"


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (-1, "start of a freed object was overwritten"),
        (64, "end of a freed object was overwritten"),
        (5, "Slab corruption"),
    ],
)
def test_a_slab_that_goes_is_looked_at_once_more(allocator, offset, what):
    cache = allocator.create_cache("going", 64, **ALL)
    objects = cache.alloc_bulk(3)
    cache.free_bulk(objects)
    allocator.poke(objects[1], offset, b"\0")

    cache.shrink()

    assert cache.slabs == 0
    assert [report.what for report in allocator.reports] == [what]


def test_validate_finds_all_of_it_once(allocator):
    cache = allocator.create_cache("all", 64, **ALL)
    objects = cache.alloc_bulk(8)
    index = [cache.locate(address).object_index for address in objects]
    cache.free_bulk(objects[4:])
    allocator.poke(objects[0], 64, b"\0")
    allocator.poke(objects[4], 3, b"\0")
    allocator.poke(objects[5], -1, b"\0")

    findings = {finding.object_index: finding.what for finding in cache.validate()}

    assert findings == {
        index[0]: "memory outside object was overwritten",
        index[4]: "Slab corruption",
        index[5]: "start of a freed object was overwritten",
    }
    assert cache.validate() == []
    cache.free_bulk(objects[:4])
    assert len(allocator.reports) == 3


def test_wrong_addresses_are_told_and_refused(allocator):
    one = allocator.create_cache("one", 64, **ALL)
    other = allocator.create_cache("other", 64, **ALL)
    address = one.alloc()
    one.free(address + 8)
    other.free(address)
    other.free(address + (1 << 20))

    whats = [report.what for report in allocator.reports]
    assert whats[0].startswith("no object begins at")
    assert whats[1].endswith("is an object of one")
    assert whats[2].endswith("is in no slab")
    assert all("kernel BUG at mm/slab.c" in one.text for one in allocator.reports)
    assert allocator.live_count() == 1
    one.free(address)
    allocator.check()


def test_without_red_zones_a_double_free_is_refused_by_the_call(allocator):
    cache = allocator.create_cache("poisoned", 64, poison=True)
    address = free_object(cache)
    with pytest.raises(slabq.CorruptionError, match="free already"):
        cache.free(address)
    assert allocator.reports == []


def test_a_double_free_with_overwritten_words_is_refused_too(allocator):
    cache = allocator.create_cache("both", 64, **ALL)
    address = free_object(cache)
    allocator.poke(address, 64, b"\0")

    cache.free(address)

    assert [report.what for report in allocator.reports] == [
        "memory outside object was overwritten"
    ]
    allocator.check()
    assert len({cache.alloc() for _ in range(100)}) == 100


def test_a_panic_ends_the_call_that_reported():
    allocator = make_allocator(panic_on_report=True)
    cache = allocator.create_cache("panic", 64, **ALL)
    address = free_object(cache)
    with pytest.raises(slabq.CorruptionError, match="double free detected"):
        cache.free(address)
    cache.free(cache.alloc())


# -- constructors ----------------------------------------------------------------------
def test_a_constructor_runs_at_every_allocation_if_objects_are_poisoned(allocator):
    cache = allocator.create_cache("made", 16, constructor=b"ab", **ALL)
    address = cache.alloc()
    assert allocator.read(address, 16) == b"ab" * 8
    allocator.write(address, b"xxxx")
    cache.free(address)
    assert allocator.peek(address, 0, 16) == b"\x6b" * 15 + b"\xa5"

    assert cache.alloc() == address

    assert allocator.read(address, 16) == b"ab" * 8


def test_a_constructor_runs_once_if_they_are_not(allocator):
    cache = allocator.create_cache("kept", 16, constructor=b"ab", red_zone=True)
    address = cache.alloc()
    allocator.write(address, b"xxxx")
    cache.free(address)

    assert cache.alloc() == address

    assert allocator.read(address, 16) == b"xxxx" + b"ab" * 6
    assert allocator.reports == []


# -- the lines -------------------------------------------------------------------------
def test_a_double_free_has_the_lines_of_the_kernel(allocator):
    cache = allocator.create_cache("my_cache", 64, **ALL)
    address = free_object(cache)

    cache.free(address)

    assert allocator.reports[0].text.splitlines() == [
        "slab error in verify_redzone_free(): cache `my_cache': double free detected",
        f"{address - 8:016x}: redzone 1:0x9f911029d74e35b, redzone 2:0x9f911029d74e35b",
    ]


def test_a_corruption_has_the_lines_of_its_time(allocator):
    cache = allocator.create_cache("form", 40, **ALL)
    first, address, third = sorted(cache.alloc_bulk(3, cpu=0))
    cache.free(address, site=41)
    allocator.poke(address, 1, b"\x4b")
    allocator.poke(address, 39, b"\0")
    assert cache.alloc() == address

    told = allocator.reports[0].text.splitlines()

    old = is_classic(allocator)
    bytes_of = r"( [0-9a-f]{2}){16}" + ("" if old else r"  .{16}")
    neighbour = [
        r"Redzone: 0xd84156c5635688c0/0xd84156c5635688c0",
        r"Last user: \[<0{16}>\]\(0x0\)",
        rf"000:{bytes_of}",
        rf"010:{bytes_of}",
    ]
    patterns = [
        rf"Slab corruption{'' if old else re.escape(' (Not tainted)')}: form "
        rf"start={address:016x}, len=40",
        r"Redzone: 0x9f911029d74e35b/0x9f911029d74e35b",
        r"Last user: \[<0{14}29>\]\(site_41\)",
        r"000: 6b 4b( 6b){14}" + ("" if old else "  kKk{14}"),
        r"Single bit error detected\. Probably bad RAM\.",
        r"Run memtest86\+ or a similar memory test tool\.",
        r"020:( 6b){7} 00" + ("" if old else " {26}k{7}\\."),
        rf"Prev obj: start={first:016x}, len=40",
        *neighbour,
        rf"Next obj: start={third:016x}, len=40",
        *neighbour,
    ]
    assert len(told) == len(patterns), told
    for line, pattern in zip(told, patterns, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_at_most_six_lines_of_an_object_are_shown(allocator):
    cache = allocator.create_cache("long", 400, poison=True)
    address = free_object(cache)
    allocator.poke(address, 0, bytes(200))
    cache.alloc()

    head = allocator.reports[0].text.partition("Prev obj")[0].partition("Next obj")[0]
    assert [line[:4] for line in head.splitlines()[1:]] == [
        f"{16 * n:03x}:" for n in range(6)
    ]


# -- flags -----------------------------------------------------------------------------
def test_boot_flags_are_letters_of_zpu(allocator):
    kernel = allocator.policy.kernel
    chosen = make_allocator(kernel, debug="ZU,one;P,two")
    one, two, three = (chosen.create_cache(name, 64) for name in ("one", "two", "x"))
    assert [(c.red_zone, c.poison, c.store_user) for c in (one, two, three)] == [
        (True, False, True),
        (False, True, False),
        (False, False, False),
    ]
    every = make_allocator(kernel, debug=",one").create_cache("one", 64)
    assert (every.red_zone, every.poison, every.sanity_checks) == (True, True, False)
    with pytest.raises(slabq.ParameterError, match="letters of ZPU for policy slab"):
        make_allocator(kernel, debug="FZ")


def test_boot_flags_spare_large_objects_that_words_would_double(allocator):
    chosen = make_allocator(allocator.policy.kernel, debug="ZPU")
    sizes = (4095, 4096, 4097, 8168, 8169)
    caches = [chosen.create_cache(f"big-{size}", size) for size in sizes]

    # 24 bytes more than 8168 are 8192; more than that many, past a power of two
    assert [cache.red_zone for cache in caches] == [True, False, True, True, False]
    assert all(cache.poison for cache in caches)
    assert chosen.create_cache("asked", 8169, red_zone=True).red_zone


@pytest.mark.parametrize("flag", ["consistency_checks", "trace"])
def test_flags_that_slab_does_not_have_are_refused(allocator, flag):
    with pytest.raises(slabq.ParameterError, match="red_zone, poison, store_user"):
        allocator.create_cache("no", 64, **{flag: True})


def test_what_leads_from_slab_to_slab_cannot_be_overwritten(allocator):
    cache = allocator.create_cache("guard", 256, **ALL)
    objects = cache.alloc_bulk(3)
    cache.free_bulk(objects[:2])
    cache.shrink()
    page = objects[2] & ~0xFFF
    told = []
    for offset in range(0, 4096 << cache.order, 8):
        try:
            allocator.poke(page, offset, b"\xff" * 8)
        except slabq.ParameterError as error:
            told.append(str(error))
    assert told
    assert all("in the management of cache guard" in text for text in told)
    assert cache.validate() != []
    allocator.check()
    cache.free(objects[2])
    cache.shrink()
    allocator.check()


# -- ordinary use ----------------------------------------------------------------------


@pytest.mark.parametrize("flags", [ALL, {"poison": True}, {"red_zone": True}])
@pytest.mark.parametrize("boot", [None, "ZPU"])
def test_sound_use_is_never_told(kernel, flags, boot):
    for size in (8, 24, 64, 200, 700, 3000, 9000):
        allocator = make_allocator(kernel, cpus=4, nodes=2, debug=boot)
        cache = use_soundly(allocator, size, flags)
        cache.shrink()
        assert cache.slabs == 0
        assert allocator.reports == []
        cache.destroy()


@pytest.mark.parametrize("flags", [ALL, {"poison": True}, {"red_zone": True}])
def test_random_writes_never_stop_a_debug_cache(kernel, flags):
    for seed in range(4):
        draw = random.Random(seed)
        allocator = make_allocator(kernel, cpus=2)
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
                    cache.free(live.pop(draw.randrange(len(live))), cpu=cpu)
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
            assert allocator.live_count() == len(live)
            allocator.check()
        assert len(set(live)) == len(live)
        cache.validate()
        assert cache.validate() == []
        cache.free_bulk(live)
        cache.destroy()
