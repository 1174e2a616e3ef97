package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Command line: "--name value" pairs; a name followed by another name (or by nothing) is a switch. Names may
 * repeat.
 */
final class Args {
    private static final AtomicInteger RUNS = new AtomicInteger();
    /** Tells runs in one process apart. */
    final int run = RUNS.incrementAndGet();
    private final Map<String, List<String>> values = new HashMap<>();

    Args(String[] argv) {
        for (int i = 0; i < argv.length; i++) {
            if (!argv[i].startsWith("--")) {
                throw new IllegalArgumentException("expected --name, got " + argv[i]);
            }
            boolean bare = i + 1 == argv.length || argv[i + 1].startsWith("--");
            String name = argv[i].substring(2);
            values.computeIfAbsent(name, k -> new ArrayList<>()).add(bare ? "true" : argv[++i]);
        }
    }

    String get(String name, String orElse) {
        List<String> v = values.get(name);
        return v == null ? orElse : v.get(v.size() - 1);
    }

    String need(String name) {
        String v = get(name, null);
        if (v == null) {
            throw new IllegalArgumentException("--" + name + " is required");
        }
        return v;
    }

    int num(String name, int orElse) {
        return Integer.parseInt(get(name, Integer.toString(orElse)));
    }

    boolean has(String name) {
        return Boolean.parseBoolean(get(name, "false"));
    }

    /** All "--name key=value" entries. */
    Properties pairs(String name) {
        Properties p = new Properties();
        for (String s : values.getOrDefault(name, List.of())) {
            int eq = s.indexOf('=');
            p.setProperty(s.substring(0, eq), s.substring(eq + 1));
        }
        return p;
    }
}
