package interop;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Measures RocketMQ's own store with its own defaults (1 GiB segments, 300,000-unit queues, index on); one
 * JSON line a run.
 * On a busy machine, trust "perCpuSecond" (messages for a second of CPU time of the putting threads) before
 * "perSecond".
 *
 * <pre>
 * StoreBench DIR put [--threads N --body BYTES --sync --warm --plain --warmup S --seconds S]
 *     asyncPutMessage and wait; --plain: no tags, no key (nothing to index)
 * StoreBench DIR fill [--bytes N --body BYTES --plain --exit clean | halt]
 *     writes a log of that many bytes, for the runs below
 * StoreBench DIR scan       getMessage, 32 a call, through every queue
 * StoreBench DIR recover    time of load(): recovery of the folder as it lies
 * StoreBench DIR rebuild    time until a folder without queues and index has them again
 * </pre>
 */
public final class StoreBench {
    private static final int QUEUES = 4;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private final Args args;
    private final String folder;
    private final byte[] body;
    private final boolean plain;
    private DefaultMessageStore store;

    private StoreBench(Args args) {
        this.args = args;
        this.folder = args.words.get(0);
        this.body = new byte[args.get("body", 256)];
        new java.util.Random(1).nextBytes(body);
        this.plain = args.has("plain");
    }

    public static void main(String[] argv) throws Exception {
        Rmq.captureLog(new ArrayList<>(), false);
        Args args = new Args(argv);
        StoreBench bench = new StoreBench(args);
        Map<String, Object> line = switch (args.words.get(1)) {
            case "put" -> bench.put();
            case "fill" -> bench.fill();
            case "scan" -> bench.scan();
            case "recover" -> bench.recover(false);
            case "rebuild" -> bench.recover(true);
            default -> throw new IllegalArgumentException(args.words.get(1));
        };
        System.out.println(Json.text(line));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void create() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + File.separator + "commitlog");
        config.setFlushDiskType(args.has("sync") ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        config.setWarmMapedFileEnable(args.has("warm"));
        config.setDiskMaxUsedSpaceRatio(95);
        store = Rmq.create(config);
    }

    private void open() throws Exception {
        create();
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load the folder");
        }
        store.start();
    }

    private Msg message(long number) {
        Msg m = new Msg();
        m.topic = "bench";
        m.queueId = (int) (number % QUEUES);
        m.bornTimestamp = System.currentTimeMillis();
        m.bornHost = m.storeHost = Generator.storeHost();
        if (!plain) {
            m.properties.put("UNIQ_KEY", String.format("%032X", number));
            m.properties.put("TAGS", "TagA");
        }
        m.body = body;
        return m;
    }

    private Map<String, Object> put() throws Exception {
        open();
        int threads = args.get("threads", 1);
        long warmupEnds = System.nanoTime() + args.get("warmup", 2) * 1_000_000_000L;
        long ends = warmupEnds + args.get("seconds", 6) * 1_000_000_000L;
        Histogram all = new Histogram();
        AtomicLong put = new AtomicLong();
        AtomicLong cpu = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        List<Thread> workers = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int worker = t;
            Thread thread = new Thread(() -> {
                Histogram mine = new Histogram();
                long done = 0;
                long cpuBegin = 0;
                for (long i = 0; ; i++) {
                    Msg message = message(i * threads + worker);
                    long begin = System.nanoTime();
                    PutMessageResult result = Rmq.putAsync(store, message).join();
                    long end = System.nanoTime();
                    if (!result.isOk()) {
                        failed.incrementAndGet();
                    }
                    if (end >= ends) {
                        break;
                    }
                    if (begin >= warmupEnds) {
                        if (done == 0) {
                            cpuBegin = THREADS.getCurrentThreadCpuTime();
                        }
                        mine.add(end - begin);
                        done++;
                    }
                }
                put.addAndGet(done);
                cpu.addAndGet(THREADS.getCurrentThreadCpuTime() - cpuBegin);
                synchronized (all) {
                    all.add(mine);
                }
            });
            workers.add(thread);
            thread.start();
        }
        for (Thread thread : workers) {
            thread.join();
        }
        long behind = store.dispatchBehindBytes();
        long stopped = System.nanoTime();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return Json.object("case", "put", "threads", threads, "body", body.length, "sync", args.has("sync"),
            "warm", args.has("warm"),
            "plain", plain, "perSecond", put.get() / args.get("seconds", 6), "perCpuSecond",
                Math.round(put.get() * 1e9 / cpu.get()), "failed", failed.get(),
            "p50us", all.micros(0.5), "p99us", all.micros(0.99), "p999us", all.micros(0.999), "maxUs",
                all.maxMicros(),
            "behindBytes", behind, "catchUpMs", (System.nanoTime() - stopped) / 1_000_000);
    }

    private Map<String, Object> fill() throws Exception {
        open();
        long bytes = args.get("bytes", (1L << 30) - 1_000_000);
        long count = 0;
        while (store.getMaxPhyOffset() < bytes) {
            Rmq.putAsync(store, message(count++)).join();
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        long end = store.getMaxPhyOffset();
        if (args.get("exit", "clean").equals("clean")) {
            store.shutdown();
        }
        return Json.object("case", "fill", "messages", count, "bytes", end);
    }

    private Map<String, Object> scan() throws Exception {
        open();
        double best = 0;
        long messages = 0;
        List<Double> rates = new ArrayList<>();
        List<Long> cpuRates = new ArrayList<>();
        for (int round = 0; round < args.get("rounds", 3); round++) {
            messages = 0;
            long begin = System.nanoTime();
            long cpuBegin = THREADS.getCurrentThreadCpuTime();
            for (int queue = 0; queue < QUEUES; queue++) {
                long offset = 0;
                while (true) {
                    GetMessageResult result = store.getMessage("bench", "bench", queue, offset, 32, null);
                    if (result.getStatus() != GetMessageStatus.FOUND) {
                        break;
                    }
                    messages += result.getMessageCount();
                    offset = result.getNextBeginOffset();
                    result.release();
                }
            }
            rates.add(Math.floor(messages / ((System.nanoTime() - begin) / 1e9)));
            cpuRates.add(Math.round(messages * 1e9 / (THREADS.getCurrentThreadCpuTime() - cpuBegin)));
            best = Math.max(best, rates.get(rates.size() - 1));
        }
        return Json.object("case", "scan", "messages", messages, "perSecond", rates, "perCpuSecond", cpuRates,
            "best", best);
    }

    /** The CPU time is the whole process's: it takes in the compiler and the collector. */
    private Map<String, Object> recover(boolean rebuild) throws Exception {
        create();
        var process = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpuBegin = process.getProcessCpuTime();
        long begin = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load the folder");
        }
        double loaded = (System.nanoTime() - begin) / 1e9;
        double ready = loaded;
        if (rebuild) {
            store.start();
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(1);
            }
            ready = (System.nanoTime() - begin) / 1e9;
        }
        long bytes = store.getMaxPhyOffset();
        return Json.object("case", rebuild ? "rebuild" : "recover", "bytes", bytes, "loadSeconds", loaded,
            "readySeconds", ready,
            "cpuSeconds", (process.getProcessCpuTime() - cpuBegin) / 1e9,
            "bytesPerSecond", Math.round(bytes / ready));
    }
}
