package interop;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;

/** JSON lines of one run of a program. */
final class Out {
    private final PrintStream stream;

    Out(OutputStream stream) {
        this.stream = new PrintStream(stream, true, StandardCharsets.UTF_8);
    }

    /** Stdout, for this alone: what others print there goes to stderr from now on. */
    static Out ofProcess() {
        System.setOut(System.err);
        return new Out(new FileOutputStream(FileDescriptor.out));
    }

    void text(String s) {
        stream.println(s);
    }

    /** Prints {"event": event, k1: v1, ...}. */
    void event(String event, Object... kv) {
        StringBuilder b = new StringBuilder("{\"event\":");
        write(b, event);
        for (int i = 0; i < kv.length; i += 2) {
            b.append(',');
            write(b, kv[i].toString());
            b.append(':');
            write(b, kv[i + 1]);
        }
        text(b.append('}').toString());
    }

    private static void write(StringBuilder b, Object v) {
        if (v == null || v instanceof Boolean || v instanceof Integer || v instanceof Long) {
            b.append(v);
        } else if (v instanceof Number n) {
            b.append(Math.round(n.doubleValue() * 1000) / 1000.0);
        } else if (v instanceof Map<?, ?> m) {
            String sep = "{";
            for (Map.Entry<?, ?> e : m.entrySet()) {
                b.append(sep);
                write(b, String.valueOf(e.getKey()));
                b.append(':');
                write(b, e.getValue());
                sep = ",";
            }
            b.append(m.isEmpty() ? "{}" : "}");
        } else if (v instanceof Collection<?> c) {
            String sep = "[";
            for (Object e : c) {
                b.append(sep);
                write(b, e);
                sep = ",";
            }
            b.append(c.isEmpty() ? "[]" : "]");
        } else {
            b.append('"');
            for (char c : v.toString().toCharArray()) {
                if (c == '"' || c == '\\') {
                    b.append('\\').append(c);
                } else if (c < 0x20) {
                    b.append(String.format("\\u%04x", (int) c));
                } else {
                    b.append(c);
                }
            }
            b.append('"');
        }
    }
}
