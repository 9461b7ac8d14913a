"""Ordinary use of a debug cache, the same for every policy: nothing of it is told."""

import random


def use_soundly(allocator, size, flags):
    """Allocate and free on all CPUs, in bulk too, and give all back; the cache."""
    cache = allocator.create_cache("sound", size, **flags)
    draw = random.Random(size)
    live, blocks = [], []
    for _ in range(800):
        cpu = draw.randrange(4)
        match draw.randrange(8):
            case 0 | 1 | 2:
                live.append(cache.alloc(cpu=cpu, node=draw.choice([None, 0, 1])))
                allocator.write(live[-1], bytes(size))
            case 3 | 4 if live:
                cache.free(live.pop(draw.randrange(len(live))), cpu=cpu)
            case 5:
                live += cache.alloc_bulk(20, cpu=cpu)
            case 6:
                gone, live = live[:15], live[15:]
                cache.free_bulk(gone, cpu=cpu)
            case 7:
                blocks.append(allocator.kmalloc(draw.randrange(1, 3000), cpu=cpu))
                if draw.random() < 0.5:
                    allocator.kfree(blocks.pop(draw.randrange(len(blocks))), cpu=cpu)
        if draw.random() < 0.02:
            cache.shrink()
    assert cache.validate() == []
    allocator.check()
    cache.free_bulk(live)
    for block in blocks:
        allocator.kfree(block)
    return cache
