# What differs between the systems that PyLedger runs on; base/platform.h describes each function.
from libc.stdint cimport int64_t, uint32_t

cdef extern from "base/platform.h" nogil:
    int allocate_range(int fd, int64_t begin, int64_t end) noexcept
    int size_new_file(int fd, int64_t size_bytes, int64_t allocated_bytes) noexcept
    int sync_data(int fd) noexcept
    int sync_names(int fd) noexcept
    int sync_mapping(void* address, size_t length, const char* path) noexcept
    int sync_file_system_of(int fd) noexcept
    void start_write_back(int fd, int64_t position, int64_t length) noexcept
    int64_t find_data(int fd, int64_t position) noexcept
    int64_t find_hole(int fd, int64_t position) noexcept
    int open_nameless(const char* folder) noexcept
    int give_name(int fd, const char* path) noexcept

    int populate_pages(void* address, size_t length) noexcept
    void unmap_pages(void* address, size_t length) noexcept
    void keep_pages_small(void* address, size_t length) noexcept
    int keep_freed(int kept_bytes, int mapped_bytes) noexcept

    int64_t monotonic_ns() noexcept
    bint is_first_thread() noexcept
    int futex_wait(uint32_t* word, uint32_t expected, int64_t deadline_ns) noexcept
    void futex_wake_all(uint32_t* word) noexcept
    void prepare_fences() noexcept
    void light_fence() noexcept
    void heavy_fence() noexcept

    ctypedef struct loop_event:
        int event_fd
        int notify_fd
    int open_event(loop_event* event) noexcept
    void notify_loop(const loop_event* event) noexcept
    void clear_event(const loop_event* event) noexcept
    void close_event(loop_event* event) noexcept

    # Not on every system.
    enum: MSG_NOSIGNAL
