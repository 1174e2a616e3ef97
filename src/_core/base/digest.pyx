# Digests: CRC-32 as in zlib, CRC-32C, and RocketMQ's body CRC. The kernels and the choice between them are
# in digest_kernels.h; other fragments call crc32_update, crc32c_update and body_crc_of.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongMask
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "base/digest_kernels.h" nogil:
    ctypedef uint32_t (*crc_kernel)(uint32_t state, const uint8_t* p, size_t n) noexcept
    cdef struct named_kernel:
        const char* name
        crc_kernel kernel
    named_kernel* digest_kernels_known "digest_kernels"
    int digest_kernel_count
    const char* digest_kernel_name
    crc_kernel crc32_kernel
    crc_kernel crc32c_kernel
    crc_kernel crc32_sliced
    crc_kernel crc32c_sliced
    void choose_kernels() noexcept
    uint32_t crc32_update(uint32_t crc, const uint8_t* p, size_t n) noexcept
    uint32_t crc32c_update(uint32_t crc, const uint8_t* p, size_t n) noexcept
    uint32_t crc_update_with(crc_kernel kernel, uint32_t crc, const uint8_t* p, size_t n) noexcept

cdef enum:
    # Below this a digest takes less time than getting the interpreter lock back.
    DIGEST_RELEASE_MIN_BYTES = 1 << 20

choose_kernels()


cdef inline int32_t body_crc_of(const uint8_t* p, size_t n) noexcept nogil:
    """RocketMQ's body CRC: CRC-32 without its sign bit."""
    return <int32_t>(crc32_update(0, p, n) & 0x7FFFFFFF)


cdef uint32_t digest_buffer(crc_kernel kernel, object data, uint32_t crc) except? 0:
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < DIGEST_RELEASE_MIN_BYTES:
            return crc_update_with(kernel, crc, <const uint8_t*>buffer.buf, <size_t>buffer.len)
        with nogil:
            crc = crc_update_with(kernel, crc, <const uint8_t*>buffer.buf, <size_t>buffer.len)
        return crc
    finally:
        PyBuffer_Release(&buffer)


cdef inline uint32_t digest_object(crc_kernel kernel, object data, object value) except? 0:
    cdef uint32_t crc = <uint32_t>PyLong_AsUnsignedLongMask(value)
    cdef Py_ssize_t size
    if PyBytes_CheckExact(data):
        size = PyBytes_GET_SIZE(data)
        if size < DIGEST_RELEASE_MIN_BYTES:
            return crc_update_with(kernel, crc, <const uint8_t*>PyBytes_AS_STRING(data), <size_t>size)
    return digest_buffer(kernel, data, crc)


def crc32(data, /, value=0):
    """CRC-32 of `data`, going on from `value`; equal to zlib.crc32."""
    return digest_object(crc32_kernel, data, value)


def crc32c(data, /, value=0):
    """CRC-32C (Castagnoli) of `data`, going on from `value`."""
    return digest_object(crc32c_kernel, data, value)


def body_crc(data, /):
    """RocketMQ's CRC of a message body: CRC-32 & 0x7FFFFFFF."""
    return digest_object(crc32_kernel, data, 0) & 0x7FFFFFFF


def crc32_portable(data, /, value=0):
    """CRC-32 by table lookups, as on a processor without carry-less multiplication."""
    return digest_object(crc32_sliced, data, value)


def crc32c_portable(data, /, value=0):
    """CRC-32C by table lookups, as on a processor without instructions for it."""
    return digest_object(crc32c_sliced, data, value)


def digest_with(str kernel, data, /, value=0):
    """Digest with a kernel by its name in `digest_kernels()`, for tests and benchmarks."""
    cdef int i
    for i in range(digest_kernel_count):
        if digest_kernels_known[i].name.decode("ascii") == kernel:
            return digest_object(digest_kernels_known[i].kernel, data, value)
    raise ValueError(f"no kernel {kernel!r} on this processor; there are {', '.join(digest_kernels())}")


def digest_kernels():
    """Names of the kernels that this processor can run."""
    return tuple(digest_kernels_known[i].name.decode("ascii") for i in range(digest_kernel_count))


def digest_backend():
    """Name of the kernels in use."""
    return digest_kernel_name.decode("ascii")
