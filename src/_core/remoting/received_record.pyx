# Records of a pull response, decoded attribute by attribute on access. Each keeps the bytes of its response.
from _core.layout cimport (PARSED_BAD_MAGIC, PARSED_BLANK, PARSED_RECORD, RECORD_MIN_BYTES, SYS_COMPRESSED,
                           SYS_INNER_BATCH, Record, find_property, get_i32, parse_record)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pyledger import errors


cdef class ReceivedRecord:
    """A record that was received; see _core.pyi."""

    cdef Record record
    cdef bytes owner
    cdef public str topic
    cdef public str broker_name
    cdef bytes _born_host
    cdef bytes _store_host
    cdef bytes _stored_body
    cdef bytes _body
    cdef dict _properties

    @property
    def queue_id(self):
        return self.record.queue_id

    @queue_id.setter
    def queue_id(self, int32_t number):
        self.record.queue_id = number

    @property
    def queue_offset(self):
        return self.record.queue_offset

    @queue_offset.setter
    def queue_offset(self, int64_t offset):
        self.record.queue_offset = offset

    @property
    def physical_offset(self):
        return self.record.physical_offset

    @physical_offset.setter
    def physical_offset(self, int64_t offset):
        self.record.physical_offset = offset

    @property
    def store_size(self):
        return self.record.size_bytes

    @store_size.setter
    def store_size(self, int32_t number):
        self.record.size_bytes = number

    @property
    def flag(self):
        return self.record.flag

    @flag.setter
    def flag(self, int32_t number):
        self.record.flag = number

    @property
    def sys_flag(self):
        return self.record.sys_flag

    @sys_flag.setter
    def sys_flag(self, int32_t bits):
        self.record.sys_flag = bits

    @property
    def born_timestamp(self):
        return self.record.born_timestamp

    @born_timestamp.setter
    def born_timestamp(self, int64_t moment_ms):
        self.record.born_timestamp = moment_ms

    @property
    def store_timestamp(self):
        return self.record.store_timestamp

    @store_timestamp.setter
    def store_timestamp(self, int64_t moment_ms):
        self.record.store_timestamp = moment_ms

    @property
    def reconsume_times(self):
        return self.record.reconsume_times

    @reconsume_times.setter
    def reconsume_times(self, int32_t times):
        self.record.reconsume_times = times

    @property
    def prepared_transaction_offset(self):
        return self.record.prepared_transaction_offset

    @prepared_transaction_offset.setter
    def prepared_transaction_offset(self, int64_t number):
        self.record.prepared_transaction_offset = number

    @property
    def body_crc(self):
        return self.record.body_crc

    @body_crc.setter
    def body_crc(self, int32_t number):
        self.record.body_crc = number

    @property
    def body_length(self):
        """Bytes of the stored body."""
        return self.record.body_bytes

    cdef bytes copy_of_body(self):
        if self._stored_body is None:
            self._stored_body = PyBytes_FromStringAndSize(<const char*>self.record.body,
                                                          self.record.body_bytes)
        return self._stored_body

    @property
    def stored_body(self):
        """The body as stored, possibly compressed."""
        return self.copy_of_body()

    @stored_body.setter
    def stored_body(self, bytes body not None):
        self._stored_body = body
        self._body = None
        self.record.body_bytes = <int32_t>PyBytes_GET_SIZE(body)

    @property
    def body(self):
        """The body as it was sent; see _core.pyi."""
        if self.record.sys_flag & SYS_COMPRESSED == 0:
            return self.copy_of_body()
        if self._body is None:
            self._body = self.decompressed()
        return self._body

    def decompressed(self):
        """Decompress the stored body; see _core.pyi."""
        raise errors.InvariantError("a compressed body")

    @property
    def properties(self):
        """Names and values, the system's own included."""
        if self._properties is None:
            self._properties = properties_of(&self.record)
        return self._properties

    @properties.setter
    def properties(self, dict properties not None):
        self._properties = properties

    def property(self, str name not None):
        """The value of a property; None without it."""
        cdef bytes wanted
        cdef const uint8_t* value = NULL
        cdef int32_t value_bytes = 0
        if self._properties is not None:
            return self._properties.get(name)
        wanted = name.encode()
        if not find_property(&self.record, PyBytes_AS_STRING(wanted), <int32_t>len(wanted), &value,
                             &value_bytes):
            return None
        return decode_text(value, value_bytes)

    @property
    def packed_born_host(self):
        """Address and port of the sender as in a record."""
        if self._born_host is None and self.record.born_host != NULL:
            self._born_host = PyBytes_FromStringAndSize(<const char*>self.record.born_host,
                                                        self.record.born_host_bytes)
        return self._born_host

    @packed_born_host.setter
    def packed_born_host(self, bytes host not None):
        self._born_host = host

    @property
    def packed_store_host(self):
        """Address and port of the broker as in a record."""
        if self._store_host is None and self.record.store_host != NULL:
            self._store_host = PyBytes_FromStringAndSize(<const char*>self.record.store_host,
                                                         self.record.store_host_bytes)
        return self._store_host

    @packed_store_host.setter
    def packed_store_host(self, bytes host not None):
        self._store_host = host

    def copied(self):
        """Another one of the same record."""
        cdef type kind = type(self)
        cdef ReceivedRecord other = kind.__new__(kind)
        other.record = self.record
        other.owner = self.owner
        other.topic = self.topic
        other.broker_name = self.broker_name
        other._born_host = self._born_host
        other._store_host = self._store_host
        other._stored_body = self._stored_body
        other._body = self._body
        other._properties = self._properties
        return other


cdef int reject_record(int64_t at, int status) except -1:
    """Raise an error that names why the bytes at an offset are not a record of a message."""
    if status == PARSED_BAD_MAGIC or status == PARSED_BLANK:
        raise errors.MalformedRecordError(at, "its magic number is none of a message")
    raise errors.MalformedRecordError(at, "its lengths do not fit its size")


def read_records(bytes data not None, type kind not None, str broker_name not None, queue_id=None,
                 int64_t delta=0):
    """All records of an answer; see _core.pyi."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef int64_t at = 0
    cdef int32_t record_bytes, status
    cdef int32_t queue = 0 if queue_id is None else queue_id
    cdef bint keeps_queue = queue_id is None
    cdef ReceivedRecord message
    cdef ReceivedRecord before = None
    cdef bint has_batches = False
    cdef list found = []
    while at < size:
        if size - at < RECORD_MIN_BYTES:
            raise errors.MalformedRecordError(at, "the answer ends within it")
        record_bytes = get_i32(base + at)
        if not RECORD_MIN_BYTES <= record_bytes <= size - at:
            raise errors.MalformedRecordError(at, f"its size cannot be {record_bytes}")
        message = kind.__new__(kind)
        status = parse_record(base + at, record_bytes, &message.record)
        if status != PARSED_RECORD:
            reject_record(at, status)
        ASSERT(message.record.properties + message.record.properties_bytes == base + at + record_bytes)
        message.owner = data
        message.broker_name = broker_name
        if not keeps_queue:
            message.record.queue_id = queue
        message.record.queue_offset += delta
        if before is not None and before.record.topic_bytes == message.record.topic_bytes and memcmp(
                before.record.topic, message.record.topic, <size_t>message.record.topic_bytes) == 0:
            message.topic = before.topic
        else:
            message.topic = decode_text(message.record.topic, message.record.topic_bytes)
        has_batches = has_batches or message.record.sys_flag & SYS_INNER_BATCH != 0
        before = message
        found.append(message)
        at += record_bytes
    return found, has_batches
