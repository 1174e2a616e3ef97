package interop;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import com.alibaba.fastjson.JSON;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.slf4j.LoggerFactory;

/**
 * Check DIR: loads and recovers a node folder (.../dledger-ID) with Java's file store and prints every
 * entry, then one summary line.
 *   --data-file-size N --index-file-size N   default: length of the first file found
 *   --in-place                               open the folder itself (recovery writes to it); default is a
 * sparse copy
 *   --no-entries                             summary only
 *   --strict                                 bytes behind the end count as a complaint
 * Exit status: 0 clean, 2 Java complained or stopped its scan at a bad record, 3 Java failed, 255 Java
 * ended the process.
 */
public final class Check {
    private static final List<String> COMPLAINTS = new ArrayList<>();
    private static boolean done;

    private Check() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        Path dir = Path.of(args.words.get(0)).toAbsolutePath().normalize();
        String id = dir.getFileName().toString().replaceFirst("^dledger-", "");
        Path base = dir.getParent();
        Path tmp = null;
        if (!args.has("in-place")) {
            tmp = Files.createTempDirectory("dledger-check");
            base = tmp;
            new ProcessBuilder("cp", "-a", "--sparse=always", dir.toString(), tmp.resolve("dledger-" + id)
                .toString()).inheritIO().start().waitFor();
        }
        Path node = base.resolve("dledger-" + id);
        int status;
        try {
            status = check(args, base, node, id);
        } finally {
            done = true;
            if (tmp != null) {
                new ProcessBuilder("rm", "-rf", tmp.toString()).start().waitFor();
            }
        }
        System.exit(status);
    }

    private static int check(Args args, Path base, Path node, String id) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("check");
        config.setSelfId(id);
        config.setPeers(id + "-127.0.0.1:1");
        config.setStoreBaseDir(base.toString());
        config.setMappedFileSizeForEntryData((int) args.num("data-file-size",
            firstLength(node.resolve("data"), config.getMappedFileSizeForEntryData())));
        config.setMappedFileSizeForEntryIndex((int) args.num("index-file-size",
            firstLength(node.resolve("index"), config.getMappedFileSizeForEntryIndex())));
        listen(node.toString());
        byte[] indexBefore = image(node.resolve("index"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (!done) {
                Out.json("event", "check", "fatal", "the store ended the process", "complaints", COMPLAINTS);
            }
        }));
        MemberState state = new MemberState(config);
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, state);
        try {
            store.load();
            store.recover();
        } catch (Throwable t) {
            Out.json("event", "check", "fatal", t.toString().replace(node + File.separator, ""),
                "complaints", COMPLAINTS);
            return 3;
        }
        store.flush();
        long begin = Gen.begin(store);
        long end = store.getLedgerEndIndex();
        Long committedPos = Gen.call(store, "getCommittedPos");
        long dataEnd = store.getDataFileList().getMaxWrotePosition();
        if (end >= 0 && !args.has("no-entries")) {
            for (long i = begin; i <= end; i++) {
                DLedgerEntry e = store.get(i);
                byte[] body = e.getBody() == null ? new byte[0] : e.getBody();
                CRC32 crc = new CRC32();
                crc.update(body);
                Out.json("index", e.getIndex(), "term", e.getTerm(), "pos", e.getPos(), "magic",
                    e.getMagic(), "size", e.getSize(), "channel", e.getChannel(),
                    "chainCrc", e.getChainCrc(), "bodyCrc", e.getBodyCrc(), "bodyLen", body.length,
                        "crc32OfBody", crc.getValue(), "sha256", Body.hex(body));
            }
        }
        long trailing = trailing(node.resolve("data"), dataEnd);
        Long firstTerm = end >= 0 ? (Long) store.get(begin).getTerm() : null;
        Map<String, Object> line = Out.map("event", "check", "id", id, "term", state.currTerm(), "voteFor",
            state.currVoteFor(), "begin", begin, "beginTerm", firstTerm,
            "end", end, "endTerm", store.getLedgerEndTerm(), "dataEnd", dataEnd, "committed",
                Gen.committed(store, state), "committedPos", committedPos,
            "dataFiles", names(node.resolve("data")), "indexFiles", names(node.resolve("index")).size(),
                "dataFileSize", config.getMappedFileSizeForEntryData(),
            "indexFileSize", config.getMappedFileSizeForEntryIndex(), "indexRewritten",
                !Arrays.equals(indexBefore, image(node.resolve("index"))),
            "bytesBehindEnd", trailing, "complaints", COMPLAINTS);
        Out.line(JSON.toJSONString(line));
        return COMPLAINTS.isEmpty() && !(args.has("strict") && trailing > 0) ? 0 : 2;
    }

    /** Everything the store logs at WARN or above, and the information lines that carry an exception (a
     * scan that met a bad record). */
    private static void listen(String folder) {
        Logger root = (Logger) LoggerFactory.getLogger("io.openmessaging.storage.dledger");
        root.setLevel(Level.INFO);
        root.setAdditive(false);
        AppenderBase<ILoggingEvent> a = new AppenderBase<>() {
            @Override
            protected void append(ILoggingEvent e) {
                boolean missingCheckpoint = e.getFormattedMessage().startsWith("Load checkpoint failed");
                if (!missingCheckpoint && (e.getLevel().isGreaterOrEqual(Level.WARN)
                    || e.getThrowableProxy() != null)) {
                    String why = e.getThrowableProxy() == null ? "" : " | " + e.getThrowableProxy()
                        .getMessage();
                    COMPLAINTS.add((e.getFormattedMessage() + why).replace(folder + File.separator, ""));
                }
            }
        };
        a.setContext(root.getLoggerContext());
        a.start();
        root.addAppender(a);
    }

    private static File[] files(Path dir) {
        File[] f = dir.toFile().listFiles();
        f = f == null ? new File[0] : f;
        Arrays.sort(f);
        return f;
    }

    private static long firstLength(Path dir, long fallback) {
        File[] f = files(dir);
        return f.length == 0 ? fallback : f[0].length();
    }

    private static List<Long> names(Path dir) {
        return Arrays.stream(files(dir)).map(f -> Long.parseLong(f.getName())).toList();
    }

    /** Digest of the folder's content, cheap enough for sparse test files. */
    private static byte[] image(Path dir) throws Exception {
        CRC32 crc = new CRC32();
        for (File f : files(dir)) {
            try (FileChannel c = FileChannel.open(f.toPath(), StandardOpenOption.READ)) {
                ByteBuffer b = c.map(FileChannel.MapMode.READ_ONLY, 0, Math.min(c.size(), 16 << 20));
                crc.update(b);
            }
        }
        return ByteBuffer.allocate(8).putLong(crc.getValue()).array();
    }

    /** Distance from the recovered end to the last byte that is not zero, 0 when there is none. */
    private static long trailing(Path data, long end) throws Exception {
        long last = end;
        for (File f : files(data)) {
            long start = Long.parseLong(f.getName());
            try (FileChannel c = FileChannel.open(f.toPath(), StandardOpenOption.READ)) {
                long from = Math.max(0, end - start);
                if (from >= c.size()) {
                    continue;
                }
                ByteBuffer b = c.map(FileChannel.MapMode.READ_ONLY, from, c.size() - from);
                for (int i = 0; i < b.limit(); i++) {
                    if (b.get(i) != 0) {
                        last = start + from + i + 1;
                    }
                }
            }
        }
        return last - end;
    }
}
