package interop;

import java.io.File;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Opens a folder with RocketMQ's own store, recovery included, and prints what it finds. The folder is
 * changed: hand in a copy.
 *
 * <pre>
 * StoreRead DIR [--queries] [--log] [--verbose] [--index-slots N --index-entries N] [--set name=value,…]
 * StoreRead DIR --topic T --key K [--begin MS --end MS --max N]
 * StoreRead DIR --topic T --queue N --time MS
 *   --queries   also ask the index for every key, and every queue for store times
 *   --log       print the store's own log to stderr
 * </pre>
 * Exit: 0 good; 1 the program failed; 3 recovery dropped bytes or the store complained; 4 queue and log do
 * not agree; 5 the store refuses the folder.
 */
public final class StoreRead {
    private final PrintStream out = new PrintStream(
        new java.io.BufferedOutputStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), 1 << 16),
            false, StandardCharsets.UTF_8);
    private final List<String> log = new ArrayList<>();
    private final Args args;
    private final File folder;
    private final Set<Long> indexed = new HashSet<>();
    private final Map<String, SortedMap<String, Long>> keys = new TreeMap<>();
    private final Map<String, TreeSet<Long>> times = new TreeMap<>();
    private DefaultMessageStore store;
    private int messages;
    private int unindexed;
    private int blanks;
    private final List<String> faults = new ArrayList<>();

    private StoreRead(Args args) {
        this.args = args;
        this.folder = new File(args.words.get(0));
    }

    public static void main(String[] argv) throws Exception {
        StoreRead program = new StoreRead(new Args(argv));
        int code = 1;
        try {
            code = program.run();
        } finally {
            program.out.flush();
            if (program.args.has("log")) {
                program.log.forEach(System.err::println);
            }
        }
        Runtime.getRuntime().halt(code);
    }

    private int run() throws Exception {
        Rmq.captureLog(log, args.has("verbose"));
        Snapshot before = new Snapshot(folder);
        store = Rmq.create(Settings.forReading(folder.getPath(), args));
        long begin = System.nanoTime();
        if (!store.load()) {
            out.println(Json.text(Json.object("kind", "summary", "loaded", false, "abortFile", before.abort,
                "complaints", complaints())));
            return 5;
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        long recoveredEnd = store.getMaxPhyOffset();
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        List<String> complaints = null;
        if (args.has("key")) {
            query(args.get("topic", ""), args.get("key", ""), args.get("begin", 0L),
                args.get("end", Long.MAX_VALUE), args.get("max", 64));
            out.flush();
        } else if (args.has("time")) {
            askTime(args.get("topic", ""), args.get("queue", 0), args.get("time", 0L));
        } else {
            readQueues();
            readLog();
            complaints = complaints();
            if (args.has("queries")) {
                askEverything();
            }
        }
        long behind = store.dispatchBehindBytes();
        SortedMap<String, SortedMap<Integer, long[]>> queues = Rmq.queues(store);
        long dropped = Math.max(0, before.logEnd - recoveredEnd);
        int unitsDropped = 0;
        Map<String, Object> shown = new LinkedHashMap<>();
        for (var topic : queues.entrySet()) {
            for (var queue : topic.getValue().entrySet()) {
                String name = topic.getKey() + "/" + queue.getKey();
                shown.put(name, List.of(queue.getValue()[0], queue.getValue()[1]));
                unitsDropped += Math.max(0, before.queueEnds.getOrDefault(name, 0L) - queue.getValue()[1]);
            }
        }
        List<String> indexNow = Snapshot.files(new File(folder, "index")).stream()
            .map(File::getName).toList();
        List<String> indexDropped = before.indexFiles.stream()
            .filter(name -> !indexNow.contains(name)).toList();
        long min = store.getMinPhyOffset();
        long max = store.getMaxPhyOffset();
        long confirm = store.getConfirmOffset();
        if (complaints == null) {
            complaints = complaints();
        }
        store.shutdown();
        out.println(Json.text(Json.object("kind", "summary", "loaded", true, "messages", messages,
            "unindexed", unindexed, "blanks", blanks,
            "queues", shown, "minPhysicalOffset", min, "maxPhysicalOffset", max, "confirmOffset", confirm,
            "dispatchBehindBytes", behind,
            "abortFile", before.abort, "checkpointBefore", before.checkpoint, "logBytesDropped", dropped,
            "queueUnitsDropped", unitsDropped,
            "indexFilesDropped", indexDropped.size(), "abortFileAfter", new File(folder, "abort").exists(),
            "complaints", complaints, "faults", faults)));
        System.err.printf("loaded in %.3f s%n", seconds);
        return !faults.isEmpty() ? 4 : dropped > 0 || unitsDropped > 0 || !complaints.isEmpty() ? 3 : 0;
    }

    /** Warnings and errors of the store, without those that every start prints. */
    private List<String> complaints() {
        synchronized (log) {
            return log.stream().filter(line -> !ordinary(line))
                .map(line -> line.replace(folder.getPath(), "DIR")).distinct().limit(20).toList();
        }
    }

    private void readQueues() throws Exception {
        for (var topic : Rmq.queues(store).entrySet()) {
            for (var queue : topic.getValue().entrySet()) {
                long offset = queue.getValue()[0];
                while (offset < queue.getValue()[1]) {
                    offset = readChunk(topic.getKey(), queue.getKey(), offset);
                }
            }
        }
    }

    private long readChunk(String topic, int queueId, long offset) {
        GetMessageResult result = store.getMessage("interop", topic, queueId, offset, 32, null);
        if (result.getStatus() != GetMessageStatus.FOUND) {
            fault(topic + "/" + queueId + "@" + offset + ": " + result.getStatus());
            return Math.max(offset + 1, result.getNextBeginOffset());
        }
        long cursor = offset;
        for (ByteBuffer bytes : result.getMessageBufferList()) {
            long[] unit = Rmq.unit(store, topic, queueId, cursor);
            DispatchRequest own = Rmq.check(store, bytes.duplicate());
            Record record = Record.decode(bytes);
            if (unit == null || record == null) {
                fault(topic + "/" + queueId + "@" + cursor + (unit == null ? ": no unit"
                    : ": no valid record"));
                break;
            }
            if (unit[0] != record.message.getCommitLogOffset() || unit[1] != record.message.getStoreSize()
                || cursor != record.message.getQueueOffset()
                || !topic.equals(record.message.getTopic()) || queueId != record.message.getQueueId()) {
                fault(topic + "/" + queueId + "@" + cursor + ": unit and record differ");
            }
            if (unit[2] > ConsumeQueueExt.MAX_ADDR && unit[2] != own.getTagsCode()) {
                fault(topic + "/" + queueId + "@" + cursor + ": tags code " + unit[2]
                    + ", the store computes " + own.getTagsCode());
            }
            out.println(Json.text(record.json("message", unit[2])));
            note(record);
            messages++;
            cursor = unit[3] + unit[4];
        }
        result.release();
        return result.getNextBeginOffset();
    }

    private void note(Record record) {
        indexed.add(record.message.getCommitLogOffset());
        SortedMap<String, Long> known = keys.computeIfAbsent(record.message.getTopic(),
            topic -> new TreeMap<>());
        String unique = record.message.getProperties().get("UNIQ_KEY");
        if (unique != null) {
            known.put(unique, record.message.getStoreTimestamp());
        }
        if (record.message.getKeys() != null) {
            for (String key : record.message.getKeys().split(" ")) {
                if (!key.isEmpty()) {
                    known.put(key, record.message.getStoreTimestamp());
                }
            }
        }
        times.computeIfAbsent(record.message.getTopic() + "/" + record.message.getQueueId(),
                queue -> new TreeSet<>())
            .add(record.message.getStoreTimestamp());
    }

    /** Walks the commit log itself, for records that no consume queue names. */
    private void readLog() {
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult chunk = store.getCommitLogData(offset);
            if (chunk == null || chunk.getSize() < 8) {
                fault("log ends early at " + offset);
                return;
            }
            ByteBuffer bytes = chunk.getByteBuffer();
            while (bytes.remaining() >= 8) {
                int start = bytes.position();
                int size = bytes.getInt(start);
                if (bytes.getInt(start + 4) == 0xCBD43194) {
                    blanks++;
                    offset += size;
                    break;
                }
                Record record = Record.decode(bytes);
                if (record == null || record.message.getCommitLogOffset() != offset) {
                    fault("no valid record at " + offset);
                    chunk.release();
                    return;
                }
                if (!indexed.contains(offset)) {
                    out.println(Json.text(record.json("unindexed", null)));
                    unindexed++;
                }
                bytes.position(start + size);
                offset += size;
            }
            chunk.release();
        }
    }

    private void fault(String text) {
        if (faults.size() < 20) {
            faults.add(text);
        }
    }

    private void askEverything() {
        for (var topic : keys.entrySet()) {
            for (String key : topic.getValue().keySet()) {
                query(topic.getKey(), key, 0, Long.MAX_VALUE, 64);
            }
        }
        for (var queue : times.entrySet()) {
            int slash = queue.getKey().lastIndexOf('/');
            String topic = queue.getKey().substring(0, slash);
            int queueId = Integer.parseInt(queue.getKey().substring(slash + 1));
            List<Long> all = new ArrayList<>(queue.getValue());
            askTime(topic, queueId, all.get(0) - 1000);
            for (int i = 0; i < all.size(); i += Math.max(1, all.size() / 8)) {
                askTime(topic, queueId, all.get(i));
                askTime(topic, queueId, all.get(i) + 1);
            }
            askTime(topic, queueId, all.get(all.size() - 1) + 1000);
        }
    }

    private void query(String topic, String key, long begin, long end, int max) {
        List<Long> offsets = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, max, begin, end);
        for (ByteBuffer bytes : result.getMessageBufferList()) {
            offsets.add(bytes.getLong(bytes.position() + 28));
        }
        result.release();
        out.println(Json.text(Json.object("kind", "key", "topic", topic, "key", key, "physicalOffsets",
            offsets)));
    }

    private void askTime(String topic, int queueId, long timestamp) {
        long[] answer = Rmq.byTime(store, topic, queueId, timestamp);
        Map<String, Object> line = Json.object("kind", "time", "topic", topic, "queueId", queueId,
            "timestamp", timestamp, "lower", answer[0]);
        if (answer.length > 1) {
            line.put("upper", answer[1]);
        }
        out.println(Json.text(line));
    }

    /**
     * What the store logs as a warning on ordinary starts: zeros after the last record, queues cut where they
     * end anyway, units that exist, full index files.
     */
    private static boolean ordinary(String line) {
        Matcher cut = CUT.matcher(line);
        return line.startsWith("INFO") || ORDINARY.stream().anyMatch(line::endsWith)
            || PLAIN.stream().anyMatch(line::contains)
            || cut.find() && cut.group(1).equals(cut.group(2));
    }

    private static final List<String> ORDINARY = List.of("Load default HA Service",
        "found a illegal magic code 0x0", "Unknown boundary type");
    private static final List<String> PLAIN = List.of("No resource file with name",
        "Maybe try to build consume queue repeatedly",
        "Over index file capacity", "is full, trying to create another one");
    private static final Pattern CUT =
        Pattern.compile("maxPhyOffsetOfConsumeQueue\\((\\d+)\\) >= processOffset\\((\\d+)\\)");
}
