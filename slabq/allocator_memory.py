"""What lies at an address of an allocator: its size, its node and its bytes."""

from slabq import _core
from slabq.cache import check_address
from slabq.cache_geometry import SIZE_MAX
from slabq.checks import require_bytes, require_int
from slabq.machine import Machine

__all__ = ["AllocatorMemory"]


class AllocatorMemory:
    """Methods of `slabq.Allocator` that look at memory, or change its bytes."""

    _core: _core.Allocator
    _machine: Machine

    def ksize(self, address: int) -> int:
        """Bytes that may be used at a live address.

        Parameters
        ----------
        address : int
            What `kmalloc` returned.

        Returns
        -------
        int
            At least the size asked for.

        Raises
        ------
        CorruptionError
            If the address is not live.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=1)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> allocator.ksize(allocator.kmalloc(33))
        64
        """
        return self._core.ksize(check_address(address))

    def node_of(self, address: int) -> int:
        """Node whose memory an address is in.

        Parameters
        ----------
        address : int
            An address of this allocator.

        Returns
        -------
        int

        Raises
        ------
        CorruptionError
            If the address is not of this machine.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=2, nodes=2)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> allocator.node_of(allocator.kmalloc(64, cpu=1))
        1
        """
        return self._core.node_of(check_address(address))

    def read(self, address: int, length: int) -> bytes:
        """Return the first bytes of a live object.

        Parameters
        ----------
        address : int
            The object.
        length : int
            Number of bytes, at most what the object has.

        Returns
        -------
        bytes

        Raises
        ------
        CorruptionError
            If the address is not live.
        ParameterError
            If the object is shorter.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=1)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> address = allocator.kmalloc(32)
        >>> allocator.write(address, b"hello")
        >>> allocator.read(address, 5)
        b'hello'
        """
        length = require_int("length", length, 0, SIZE_MAX)
        return self._core.read(check_address(address), length)

    def write(self, address: int, data: bytes) -> None:
        """Write into the first bytes of a live object.

        Parameters
        ----------
        address : int
            The object.
        data : bytes
            What to write, at most as long as the object.

        Raises
        ------
        CorruptionError
            If the address is not live.
        ParameterError
            If the object is shorter.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=1)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> allocator.write(allocator.kmalloc(32), b"x" * 32)
        """
        self._core.write(check_address(address), require_bytes("data", data))

    def peek(self, address: int, offset: int, length: int) -> bytes:
        """Return bytes of a slab, inside or outside an object.

        Parameters
        ----------
        address : int
            An address in a slab; need not be live.
        offset : int
            Where to begin, from the address; may be negative.
        length : int
            Number of bytes, all in the same slab.

        Returns
        -------
        bytes

        Raises
        ------
        ParameterError
            If the bytes do not lie in one slab of this allocator.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=1)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> cache = allocator.create_cache("example", 64, red_zone=True)
        >>> allocator.peek(cache.alloc(), 64, 8).hex()
        'cccccccccccccccc'
        """
        offset = require_int("offset", offset, -SIZE_MAX, SIZE_MAX)
        length = require_int("length", length, 0, SIZE_MAX)
        return self._core.peek(check_address(address), offset, length)

    def poke(self, address: int, offset: int, data: bytes) -> None:
        """Write into a slab of a debug cache, inside or outside an object.

        Parameters
        ----------
        address : int
            An address in a slab; need not be live.
        offset : int
            Where to begin, from the address; may be negative.
        data : bytes
            What to write; must stay in the same slab.

        Raises
        ------
        ParameterError
            If the bytes do not lie in one slab, or its cache has no debug flags.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=1)
        >>> allocator = slabq.Allocator("slub", machine=machine)
        >>> cache = allocator.create_cache("example", 64, poison=True)
        >>> allocator.poke(cache.alloc(), 0, b"x")
        """
        offset = require_int("offset", offset, -SIZE_MAX, SIZE_MAX)
        self._core.poke(check_address(address), offset, require_bytes("data", data))
