"""Every digest kernel of this processor against the bitwise model, zlib, and the system's libz (cffi)."""

import platform
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cffi
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger import _core
from pyledger.model import digest
from tests.models import digest as model

CPU_FACTS = Path("/proc/cpuinfo")
KERNELS = _core.digest_kernels()
# Past the window of the widest kernel (256 bytes) many times, and past the longest CRC-32C lane (1,536).
LENGTH_MAX = 4200


def polynomial_of(kernel: str) -> int:
    return model.CRC32C if kernel.startswith("crc32c") else model.CRC32


def seeded_bytes(length: int) -> bytes:
    return random.Random(length).randbytes(length)


@pytest.fixture(scope="module")
def libz() -> Callable[[bytes, int], int]:
    """crc32 of the system's zlib, called through cffi and not through Python's binding."""
    ffi = cffi.FFI()
    ffi.cdef("unsigned long crc32(unsigned long crc, const unsigned char *buf, unsigned int len);")
    try:
        library = ffi.dlopen("z")
    except OSError:
        library = ffi.dlopen("libz.so.1")
    return lambda data, value: int(library.crc32(value, ffi.from_buffer(data), len(data)))


@pytest.fixture
def guarded() -> Iterator[memoryview]:
    """Two readable pages between two that must not be touched."""
    ffi = cffi.FFI()
    ffi.cdef(
        "void *mmap(void *, size_t, int, int, int, long); int mprotect(void *, size_t, int);"
        "int munmap(void *, size_t);"
    )
    libc = ffi.dlopen(None)
    base = libc.mmap(ffi.NULL, 4 * 4096, 0, 0x22, -1, 0)  # PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS
    address = ffi.cast("char *", base) + 4096
    assert libc.mprotect(address, 2 * 4096, 3) == 0  # PROT_READ | PROT_WRITE
    view = memoryview(ffi.buffer(address, 2 * 4096)).cast("B")
    yield view
    view.release()
    libc.munmap(base, 4 * 4096)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_every_length_and_alignment_equals_model(kernel: str) -> None:
    data = seeded_bytes(LENGTH_MAX)
    start = 0x89ABCDEF
    expected = list(model.prefixes(polynomial_of(kernel), data, start))
    room = bytearray(LENGTH_MAX + 128)
    address = cffi.FFI()
    base = int(address.cast("uintptr_t", address.from_buffer(room)))
    for alignment in range(64):
        at = (alignment - base) % 64
        room[at : at + LENGTH_MAX] = data
        view = memoryview(room)[at : at + LENGTH_MAX]
        wrong = [
            n for n in range(LENGTH_MAX + 1) if _core.digest_with(kernel, view[:n], start) != expected[n]
        ]
        assert wrong == [], f"alignment {alignment}"


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_at_page_edges_reads_no_byte_outside(kernel: str, guarded: memoryview) -> None:
    """A read outside the two pages would end the process."""
    guarded[:] = seeded_bytes(len(guarded))
    polynomial = polynomial_of(kernel)
    front = list(model.prefixes(polynomial, bytes(guarded[:600])))
    for length in range(601):
        assert _core.digest_with(kernel, guarded[:length]) == front[length]
        back = guarded[len(guarded) - length :]
        assert _core.digest_with(kernel, back) == model_back(polynomial, back)


def model_back(polynomial: int, data: memoryview) -> int:
    """zlib where it can judge, the portable kernel (itself judged by the model) elsewhere."""
    return zlib.crc32(data) if polynomial == model.CRC32 else _core.crc32c_portable(data)


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.integers(0, 2**32 - 1))
@example(b"", b"", 0)
@example(b"abc", b"", 2**32 - 1)
def test_digest_of_two_parts_continues(first: bytes, second: bytes, value: int) -> None:
    assert digest.crc32(second, digest.crc32(first, value)) == digest.crc32(first + second, value)
    assert digest.crc32c(second, digest.crc32c(first, value)) == digest.crc32c(first + second, value)
    for kernel in KERNELS:
        whole = _core.digest_with(kernel, first + second, value)
        assert _core.digest_with(kernel, second, _core.digest_with(kernel, first, value)) == whole


@given(st.binary(max_size=3000), st.integers(-1, 2**33))
def test_crc32_any_input_equals_zlib_and_libz(
    libz: Callable[[bytes, int], int], data: bytes, value: int
) -> None:
    expected = zlib.crc32(data, value)
    assert digest.crc32(data, value) == expected
    assert _core.crc32_portable(data, value=value) == expected
    assert libz(data, value & 0xFFFFFFFF) == expected if data else True


@given(st.binary(max_size=600), st.integers(0, 2**32 - 1))
def test_crc32c_any_input_equals_model(data: bytes, value: int) -> None:
    expected = model.crc(model.CRC32C, data, value)
    assert digest.crc32c(data, value) == expected
    assert _core.crc32c_portable(data, value) == expected


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 17, 3_000_001])
def test_crc32_without_the_interpreter_lock_equals_libz(
    libz: Callable[[bytes, int], int], length: int
) -> None:
    data = seeded_bytes(length)
    assert digest.crc32(data) == libz(data, 0)
    assert digest.crc32c(memoryview(data)) == _core.crc32c_portable(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (bytes.fromhex("01c00000000000000000000000000000140000000000040000000014000000182800000000000000")
         + bytes.fromhex("0200000000000000"), 0xD9963A56),
        (b"123456789", 0xE3069283),
    ],
    ids=["zeroes", "ones", "rising", "falling", "iscsi-read", "check"],
)  # fmt: skip
def test_crc32c_vectors_of_rfc_3720(data: bytes, expected: int) -> None:
    assert digest.crc32c(data) == expected
    assert _core.crc32c_portable(data) == expected


@given(st.binary(max_size=400))
@example(b"")
@example(b"Hello RocketMQ 0")
def test_body_crc_is_crc32_without_sign(data: bytes) -> None:
    assert digest.body_crc(data) == model.body_crc(data) == zlib.crc32(data) & 0x7FFFFFFF


@pytest.mark.parametrize("function", [digest.crc32, digest.crc32c, digest.body_crc])
def test_digest_borrows_any_contiguous_buffer_and_lets_it_go(function: Callable[[object], int]) -> None:
    data = seeded_bytes(1000)
    room = bytearray(data)
    assert function(room) == function(memoryview(data)) == function(data)
    room.append(0)  # a buffer still exported would refuse
    with pytest.raises(TypeError):
        function("text")
    with pytest.raises(BufferError):
        function(memoryview(data)[::2])


def test_digest_with_unknown_kernel_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="crc32-portable"):
        _core.digest_with("crc32-by-hand", b"")


def test_digest_backend_is_the_widest_that_the_processor_has() -> None:
    """However the module was compiled: the compiler of the wheels is another one than gcc."""
    needed = {
        "vpclmulqdq": {"pclmulqdq", "sse4_2", "vpclmulqdq", "avx512bw", "avx512vl"},
        "pclmulqdq+sse4.2": {"pclmulqdq", "sse4_2"},
        "armv8-crc+pmull": {"crc32", "pmull"},
        "armv8-crc": {"crc32"},
        "portable": set(),
    }
    label = {"x86_64": "flags", "aarch64": "Features"}.get(platform.machine(), "")
    found = re.search(
        rf"^{label}\s*:(.*)$", CPU_FACTS.read_text() if CPU_FACTS.exists() else "", re.MULTILINE
    )
    if not label or found is None:
        pytest.skip("the system does not tell what the processor has")
    has = set(found[1].split())
    assert digest.digest_backend() == next(name for name, flags in needed.items() if flags <= has)


def test_digest_backend_is_the_last_kernel() -> None:
    data = seeded_bytes(5000)
    newest = [name for name in KERNELS if name.startswith("crc32-")][-1]
    assert digest.crc32(data) == _core.digest_with(newest, data) == zlib.crc32(data)
