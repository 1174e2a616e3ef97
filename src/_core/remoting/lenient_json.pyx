# fastjson's dialect of JSON in one pass over the text; `pyledger.wire.fastjson` describes it.
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from pyledger import errors

cdef extern from "Python.h":
    int PyUnicode_KIND(object text)
    void* PyUnicode_DATA(object text)
    uint32_t PyUnicode_READ(int kind, void* data, Py_ssize_t at) nogil
    bint Py_UNICODE_ISALNUM(uint32_t character) nogil
    str PyUnicode_Substring(object text, Py_ssize_t start, Py_ssize_t end)

cdef enum:
    LENIENT_DEPTH_MAX = 100
    LENIENT_DIGITS_MAX = 400
    LENIENT_KEY_DIGITS_MAX = 20
    QUICK_DIGITS_MAX = 18
    TEXT_END = 0x110000              # after the last character
    SLICE_VALUES = 1024              # values after which other threads may take the interpreter lock

cdef dict LENIENT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
cdef dict LENIENT_CONSTANTS = {"true": True, "false": False, "null": None}


cdef inline bint is_digit(uint32_t one) noexcept nogil:
    """Whether it is one of ASCII's digits."""
    return c'0' <= one <= c'9'


cdef class _LenientParser:
    """One pass over one document."""

    cdef str text
    cdef int kind
    cdef void* characters
    cdef Py_ssize_t at
    cdef Py_ssize_t size
    cdef int64_t values
    cdef int64_t containers_left
    cdef bint in_key
    cdef object compact
    cdef dict names
    cdef list containers
    cdef list references             # parent, container, key of each {"$ref": text}; None: plain objects

    def __init__(self):
        raise TypeError("parse_lenient_json makes these")

    cdef inline uint32_t character(self, Py_ssize_t at) noexcept:
        """The character at a position; TEXT_END after the last."""
        return PyUnicode_READ(self.kind, self.characters, at) if at < self.size else TEXT_END

    cdef object wrong(self, str problem):
        """The error for the position that was reached."""
        line = self.text.count("\n", 0, self.at) + 1
        return errors.MalformedJsonError(line, self.at - self.text.rfind("\n", 0, self.at), problem)

    cdef uint32_t peek(self) noexcept:
        """The next character that is neither space nor part of a comment."""
        cdef uint32_t one
        cdef Py_ssize_t end
        while True:
            one = self.character(self.at)
            if one == c' ' or c'\t' <= one <= c'\r':
                self.at += 1
                continue
            if one != c'/':
                return one
            end = self.at + 2
            if self.character(self.at + 1) == c'/':
                while end < self.size and self.character(end) != c'\n':
                    end += 1
            elif self.character(self.at + 1) == c'*':
                while end < self.size:
                    if self.character(end) == c'*' and self.character(end + 1) == c'/':
                        break
                    end += 1
                if end >= self.size:
                    return one
                end += 2
            else:
                return one
            self.at = end

    cdef object value(self, int depth):
        """Any value."""
        cdef uint32_t start = self.peek()
        if depth > LENIENT_DEPTH_MAX:
            raise self.wrong("nested too deeply")
        self.values += 1
        if self.values % SLICE_VALUES == 0:
            let_others_run()
        if start == c'{' or start == c'[':
            self.containers_left -= 1
            if self.containers_left < 0:
                raise self.wrong("too many objects and lists for a document of this size")
            return self.members(depth) if start == c'{' else self.elements(depth)
        if start == c'"' or start == c"'":
            return self.string(start)
        if is_digit(start) or start == c'-' or start == c'+' or start == c'.':
            return self.number()
        word = self.word()
        if word is None or word not in LENIENT_CONSTANTS:
            raise self.wrong("a value is expected")
        self.at += len(word)
        return LENIENT_CONSTANTS[word]

    cdef Py_ssize_t after_digits(self, Py_ssize_t at) noexcept:
        """The position after the digits at a position."""
        while is_digit(self.character(at)):
            at += 1
        return at

    cdef object number(self):
        """A number."""
        cdef Py_ssize_t start = self.at
        cdef Py_ssize_t digits = start + (self.character(start) == c'-' or self.character(start) == c'+')
        cdef Py_ssize_t end = self.after_digits(digits)
        cdef Py_ssize_t i
        cdef int64_t small = 0
        cdef bint whole = True
        if end > digits:
            if self.character(end) == c'.':
                whole = False
                end = self.after_digits(end + 1)
        elif self.character(end) == c'.' and is_digit(self.character(end + 1)):
            whole = False
            end = self.after_digits(end + 1)
        else:
            raise self.wrong("a value is expected")
        if self.character(end) == c'e' or self.character(end) == c'E':
            i = end + 1 + (self.character(end + 1) == c'-' or self.character(end + 1) == c'+')
            if is_digit(self.character(i)):
                whole = False
                end = self.after_digits(i)
        if end - start > LENIENT_DIGITS_MAX:
            raise self.wrong("a number is too long")
        self.at = end
        if whole and end - digits <= QUICK_DIGITS_MAX:
            for i in range(digits, end):
                small = small * 10 + <int64_t>(self.character(i) - c'0')
            return -small if self.character(start) == c'-' else small
        text = PyUnicode_Substring(self.text, start, end)
        return int(text) if whole else float(text)

    cdef str word(self):
        """The name without quotes that begins here; None where there is none."""
        cdef Py_ssize_t end = self.at
        cdef uint32_t one = self.character(end)
        if not (c'a' <= one <= c'z' or c'A' <= one <= c'Z' or one == c'_' or one == c'$'):
            return None
        while one != TEXT_END and (one == c'_' or one == c'$' or Py_UNICODE_ISALNUM(one)):
            end += 1
            one = self.character(end)
        return PyUnicode_Substring(self.text, self.at, end)

    cdef dict members(self, int depth):
        """From `{` to `}`."""
        cdef dict found = {}
        cdef uint32_t start
        self.containers.append(found)
        self.at += 1
        while True:
            start = self.peek()
            if start == c'}':
                break
            if start == c',':
                self.at += 1
                continue
            key = self.key(start, depth)
            if self.peek() != c':':
                raise self.wrong("':' is expected")
            self.at += 1
            value = self.value(depth + 1)
            found[key] = value
            if type(value) is dict:
                self.note_reference(found, key, value)
            start = self.peek()
            if start != c',' and start != c'}':
                raise self.wrong("',' or '}' is expected")
        self.containers.pop()
        self.at += 1
        return found

    cdef list elements(self, int depth):
        """From `[` to `]`."""
        cdef list found = []
        cdef uint32_t start
        self.containers.append(found)
        self.at += 1
        while True:
            start = self.peek()
            if start == c']':
                break
            if start == c',':
                self.at += 1
                continue
            value = self.value(depth + 1)
            found.append(value)
            if type(value) is dict:
                self.note_reference(found, len(found) - 1, value)
            start = self.peek()
            if start != c',' and start != c']':
                raise self.wrong("',' or ']' is expected")
        self.containers.pop()
        self.at += 1
        return found

    cdef object key(self, uint32_t start, int depth):
        """A key, in quotes or without, or the text of an object, which then has no such keys itself."""
        cdef Py_ssize_t digits, end
        cdef PyObject* known
        if start == c'"' or start == c"'":
            text = self.string(start)
            known = PyDict_GetItem(self.names, text)
            if known != NULL:
                return <object>known
            self.names[text] = text
            return text
        if start == c'{' and not self.in_key:
            self.in_key = True
            text = self.compact(self.value(depth + 1))
            self.in_key = False
            return text
        digits = self.at + (start == c'-')
        end = min(self.after_digits(digits), digits + LENIENT_KEY_DIGITS_MAX)
        if end > digits:
            text = PyUnicode_Substring(self.text, self.at, end)
            self.at = end
            return int(text)
        text = self.word()
        if text is None:
            raise self.wrong("a key is expected")
        self.at += len(text)
        return text

    cdef str string(self, uint32_t quote):
        """From quote to quote."""
        cdef Py_ssize_t start = self.at + 1
        cdef Py_ssize_t end = start
        cdef uint32_t one = self.character(end)
        cdef bint surrogates = False
        cdef list parts = None
        while one != quote:
            if one == TEXT_END:
                self.at = end
                raise self.wrong("a string does not end")
            if one == c'\\':
                if parts is None:
                    parts = []
                parts.append(PyUnicode_Substring(self.text, start, end))
                self.at = end
                parts.append(self.escape(&surrogates))
                start = end = self.at
            else:
                surrogates |= 0xD800 <= one < 0xE000
                end += 1
            one = self.character(end)
        text = PyUnicode_Substring(self.text, start, end)
        self.at = end + 1
        if parts is not None:
            parts.append(text)
            text = "".join(parts)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if surrogates else text

    cdef str escape(self, bint* surrogates):
        r"""One escape; Java writes characters outside the first plane as two `\u`."""
        cdef uint32_t one = self.character(self.at + 1)
        cdef Py_ssize_t i, end
        cdef int32_t unit = 0
        cdef int32_t digit
        if one == TEXT_END:
            raise self.wrong("a broken escape")
        end = self.at + 2 + (4 if one == c'u' else 2 if one == c'x' else 0)
        for i in range(self.at + 2, end):
            digit = hex_value(<uint8_t>self.character(i)) if self.character(i) < 0x80 else -1
            if digit < 0:
                raise self.wrong("a broken escape")
            unit = unit << 4 | digit
        if end > self.at + 2:
            surrogates[0] = surrogates[0] or 0xD800 <= unit < 0xE000
            self.at = end
            return chr(unit)
        self.at = end
        plain = PyUnicode_Substring(self.text, end - 1, end)
        surrogates[0] = surrogates[0] or 0xD800 <= one < 0xE000
        return LENIENT_ESCAPES.get(plain, plain)

    cdef int note_reference(self, object container, object key, dict value) except -1:
        """Remember a `{"$ref": …}` until the whole document is known."""
        if self.references is None or self.in_key or len(value) != 1:
            return 0
        if type(value.get("$ref")) is str:
            parent = self.containers[len(self.containers) - 2] if len(self.containers) > 1 else container
            self.references.append((parent, container, key))
        return 0


def parse_lenient_json(str text, compact, bint with_references, int64_t containers_max):
    """Parse one document in fastjson's dialect."""
    cdef _LenientParser parser = _LenientParser.__new__(_LenientParser)
    parser.text = text
    parser.kind = PyUnicode_KIND(text)
    parser.characters = PyUnicode_DATA(text)
    parser.size = len(text)
    parser.compact = compact
    parser.containers_left = containers_max
    parser.names = {}
    parser.containers = []
    parser.references = [] if with_references else None
    value = parser.value(0)
    if parser.peek() != TEXT_END:
        raise parser.wrong("text follows the document")
    return value, parser.references or []
