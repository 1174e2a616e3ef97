package interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** What all programs share: configuration, JSON output, payloads, waiting. */
final class Kit {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private static final int PATIENCE_S = 60;

    private Kit() { }

    static String uri(Args args) {
        String scheme = args.get("scheme", "zk+hierarchical");
        return scheme + "://" + args.need("zk").replace(',', ';') + args.get("root", "/ledgers");
    }

    static BookKeeper client(Args args) throws Exception {
        // the client's threads would keep the process alive after a failure of the main thread
        Thread.setDefaultUncaughtExceptionHandler((thread, problem) -> {
            problem.printStackTrace();
            if (thread.getName().equals("main")) {
                Runtime.getRuntime().halt(70);
            }
        });
        return new BookKeeper(clientConf(args));
    }

    /** Closing while late add responses are under way can throw inside the peer's client (seen with
     * 4.17.3). */
    static void close(BookKeeper client) {
        try {
            client.close();
        } catch (Exception e) {
            System.err.println("close: " + e);
        }
    }

    static ClientConfiguration clientConf(Args args) {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(uri(args));
        conf.setThrottleValue(0);   // the default limiter (5000/s) would be what a benchmark measures
        // a busy machine must not fail what is not about time
        conf.setAddEntryTimeout(PATIENCE_S);
        conf.setReadEntryTimeout(PATIENCE_S);
        conf.setUseV2WireProtocol(args.has("v2"));
        if (args.has("explicit-lac")) {
            conf.setExplictLacInterval(args.num("explicit-lac", 0));
        }
        overrides(conf, args, "client");
        return conf;
    }

    static ServerConfiguration serverConf(Args args) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri(args));
        conf.setAdvertisedAddress("127.0.0.1");
        conf.setListeningInterface("lo");
        conf.setAllowLoopback(true);
        overrides(conf, args, "set");
        return conf;
    }

    /** Any key of the peer's configuration: {@code --set key=value} (servers), {@code --client key=value}
     * (clients). */
    private static void overrides(AbstractConfiguration<?> conf, Args args, String key) {
        for (String pair : args.all(key)) {
            int at = pair.indexOf('=');
            conf.setProperty(pair.substring(0, at), pair.substring(at + 1));
        }
    }

    static byte[] password(Args args) {
        return args.get("password", "").equals("true") ? new byte[0]
                : args.get("password", "").getBytes(StandardCharsets.UTF_8);
    }

    static BookKeeper.DigestType digest(Args args) {
        return BookKeeper.DigestType.valueOf(args.get("digest", "CRC32C"));
    }

    /** Payload of an entry: byte j = (seed + 31·entry + 7·j + 13·(j / 256)) mod 256. */
    static byte[] payload(long seed, long entry, int size) {
        byte[] data = new byte[size];
        for (int j = 0; j < size; j++) {
            data[j] = (byte) (seed + 31 * entry + 7L * j + 13L * (j >> 8));
        }
        return data;
    }

    static String sha256(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    static synchronized void json(Map<String, Object> line) throws Exception {
        PrintStream out = System.out;
        out.println(MAPPER.writeValueAsString(line));
        out.flush();
    }

    static void json(Object... pairs) throws Exception {
        json(map(pairs));
    }

    /** Name of a client result code, for example LedgerFencedException for −101. */
    static String error(int code) {
        return code == 0 ? "OK" : BKException.create(code).getClass().getSimpleName();
    }

    static Map<String, Object> failure(Throwable problem) {
        while (problem.getCause() != null && !(problem instanceof BKException)) {
            problem = problem.getCause();
        }
        Map<String, Object> line = map("error", problem.getClass().getSimpleName());
        if (problem instanceof BKException) {
            line.put("code", ((BKException) problem).getCode());
        }
        line.put("message", String.valueOf(problem.getMessage()));
        return line;
    }

    /** Ends the program with one JSON line and exit status 1. */
    static void fail(Throwable problem) throws Exception {
        json(failure(problem));
        System.out.flush();
        Runtime.getRuntime().halt(1);
    }

    static void ready(Object... ports) {
        StringBuilder line = new StringBuilder("READY");
        for (Object port : ports) {
            line.append(' ').append(port);
        }
        System.out.println(line);
        System.out.flush();
    }

    interface Closing {
        void close() throws Exception;
    }

    /**
     * Runs the given action at SIGTERM or SIGINT, for at most 10 seconds: some components of the peer
     * retry for ever when
     * ZooKeeper has gone before them. The exit status is 4 then.
     */
    static void onTerm(Closing action) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            Thread closing = new Thread(() -> {
                try {
                    action.close();
                } catch (Exception e) {
                    System.err.println("stopping: " + e);
                }
            });
            closing.setDaemon(true);
            closing.start();
            try {
                closing.join(10_000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            if (closing.isAlive()) {
                System.err.println("stopping: given up after 10 s");
                Runtime.getRuntime().halt(4);
            }
        }));
    }
}
