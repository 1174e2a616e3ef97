package interop;

import java.io.BufferedReader;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Writes a store folder with RocketMQ's own store.
 *
 * <pre>
 * StoreWrite DIR [--seed N] [--count N] [--topics a,b] [--queues N] [--max-body N] [--mix KIND,…]
 *   KIND: single batch zlib lz4 zstd delay tx ipv6 big long inner (drawn evenly; a kind named twice comes
 * twice as often)
 *   --plain-bytes N,…           sizes, in turn, of what the kinds zlib, lz4 and zstd compress
 *   --tsv FILE --topic T        rows "queue TAB tags TAB keys TAB born ms TAB body" instead of drawn messages
 *   --commitlog-file BYTES --cq-units N --index-slots N (0: no index) --cq-ext --sync --set name=value,…
 *   --pace MICROSECONDS         pause after each message
 *   --delete-head N             at the end, let the store drop its N oldest commit log files
 *   --settle MS                 wait before closing (the checkpoint is written once a second)
 *   --exit clean | halt | hold  close; die without closing; print READY and wait for SIGTERM
 *   --quiet                     no line for each message
 * </pre>
 * Prints one JSON line for each message once the store has acknowledged it.
 */
public final class StoreWrite {
    private final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out),
        false, StandardCharsets.UTF_8);
    private final Args args;
    private final DefaultMessageStore store;
    private int written;
    private int refused;

    private StoreWrite(Args args) throws Exception {
        this.args = args;
        this.store = Rmq.create(Settings.forWriting(args.words.get(0), args));
    }

    public static void main(String[] argv) throws Exception {
        List<String> log = new ArrayList<>();
        Rmq.captureLog(log, false);
        StoreWrite program = new StoreWrite(new Args(argv));
        program.run();
        System.exit(program.refused == 0 ? 0 : 1);
    }

    private void run() throws Exception {
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load the folder");
        }
        store.start();
        if (args.has("tsv")) {
            writeRows(args.get("tsv", ""), args.get("topic", "rows"));
        } else {
            writeDrawn();
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        if (args.has("delete-head")) {
            deleteHead(args.get("delete-head", 0));
        }
        Thread.sleep(args.get("settle", 0));
        out.println(Json.text(Json.object("kind", "written", "records", written, "refused", refused,
            "minPhysicalOffset", store.getMinPhyOffset(), "maxPhysicalOffset", store.getMaxPhyOffset())));
        out.flush();
        switch (args.get("exit", "clean")) {
            case "halt" -> Runtime.getRuntime().halt(0);
            case "hold" -> {
                Runtime.getRuntime().addShutdownHook(new Thread(store::shutdown));
                out.println("READY");
                out.flush();
                Thread.sleep(Long.MAX_VALUE);
            }
            default -> store.shutdown();
        }
    }

    private void writeRows(String file, String topic) throws Exception {
        try (BufferedReader reader = Files.newBufferedReader(Path.of(file))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                String[] cells = line.split("\t", 5);
                Msg m = new Msg();
                m.topic = topic;
                m.queueId = Integer.parseInt(cells[0]);
                m.bornTimestamp = Long.parseLong(cells[3]);
                m.bornHost = m.storeHost = Generator.storeHost();
                if (!cells[1].isEmpty()) {
                    m.properties.put("TAGS", cells[1]);
                }
                if (!cells[2].isEmpty()) {
                    m.properties.put("KEYS", cells[2]);
                }
                m.body = cells[4].getBytes(StandardCharsets.UTF_8);
                done(List.of(m), Rmq.put(store, m));
            }
        }
    }

    private void writeDrawn() throws Exception {
        Generator draw = new Generator(args.get("seed", 1L), args.list("topics", "alpha,beta,gamma"),
            args.get("queues", 4), args.get("max-body", 600));
        List<String> mix = args.list("mix", "single");
        List<String> sizes = args.list("plain-bytes", "0");
        int count = args.get("count", 1000);
        while (written + refused < count) {
            String kind = mix.get(draw.random.nextInt(mix.size()));
            switch (kind) {
                case "single" -> put(draw.single());
                case "batch" -> {
                    List<Msg> parts = draw.batch();
                    done(parts, Rmq.putBatch(store, parts.get(0), parts));
                }
                case "zlib", "lz4", "zstd" -> put(draw.compressed(kind, plainBytes(sizes)));
                case "delay" -> put(draw.delayed());
                case "tx" -> transaction(draw);
                case "ipv6" -> put(draw.ipv6(1 + draw.random.nextInt(3)));
                case "big" -> put(draw.big(args.get("big", 200_000)));
                case "long" -> put(draw.longTopic());
                case "inner" -> put(draw.innerBatch());
                default -> throw new IllegalArgumentException("no such kind: " + kind);
            }
            long pace = args.get("pace", 0L);
            if (pace > 0) {
                java.util.concurrent.locks.LockSupport.parkNanos(pace * 1000);
            }
        }
    }

    private int plainBytes(List<String> sizes) {
        return Integer.parseInt(sizes.get((written + refused) % sizes.size()));
    }

    /** The three records of store-level transactions: prepared, then commit or rollback. */
    private void transaction(Generator draw) {
        Msg prepared = draw.single();
        prepared.sysFlag |= 0x4;
        prepared.properties.put("TRAN_MSG", "true");
        prepared.properties.put("PGROUP", "producers");
        AppendMessageResult result = put(prepared);
        Msg end = draw.single();
        end.topic = prepared.topic;
        end.queueId = prepared.queueId;
        end.properties = new java.util.LinkedHashMap<>(prepared.properties);
        end.body = prepared.body;
        end.sysFlag |= draw.random.nextInt(3) == 0 ? 0xC : 0x8;
        end.preparedTransactionOffset = result.getWroteOffset();
        put(end);
    }

    private AppendMessageResult put(Msg message) {
        PutMessageResult result = Rmq.put(store, message);
        done(List.of(message), result);
        return result.getAppendMessageResult();
    }

    private void done(List<Msg> messages, PutMessageResult result) {
        AppendMessageResult appended = result.getAppendMessageResult();
        if (!result.isOk()) {
            refused += messages.size();
        } else {
            written += messages.size();
        }
        if (!args.has("quiet")) {
            out.println(Json.text(Json.object("kind", "put", "status", result.getPutMessageStatus().name(),
                "topic", messages.get(0).topic, "queueId", messages.get(0).queueId, "messages",
                    messages.size(),
                "physicalOffset", appended == null ? null : appended.getWroteOffset(),
                "bytes", appended == null ? null : appended.getWroteBytes(),
                "queueOffset", appended == null ? null : appended.getLogicsOffset(),
                "storeTimestamp", appended == null ? null : appended.getStoreTimestamp(),
                "msgId", appended == null ? null : appended.getMsgId())));
            out.flush();
        }
    }

    /** Makes the oldest files look old, then runs the store's own two cleaners once. */
    private void deleteHead(int files) throws Exception {
        File[] segments = new File(args.words.get(0), "commitlog").listFiles();
        Arrays.sort(segments);
        for (int i = 0; i < files; i++) {
            segments[i].setLastModified(System.currentTimeMillis() - 7_200_000);
        }
        int deleted = Rmq.deleteOldFiles(store, 3_600_000);
        Field field = DefaultMessageStore.class.getDeclaredField("cleanConsumeQueueService");
        field.setAccessible(true);
        Method run = field.get(store).getClass().getMethod("run");
        run.setAccessible(true);
        run.invoke(field.get(store));
        out.println(Json.text(Json.object("kind", "deleted", "files", deleted)));
    }
}
