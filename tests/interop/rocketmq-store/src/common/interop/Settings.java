package interop;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Store settings from options, or from the sizes of the files that are already there. */
final class Settings {
    /** Index files of the kit keep RocketMQ's ratio: four entries for each hash slot. */
    static final int ENTRIES_PER_SLOT = 4;

    private Settings() {}

    static MessageStoreConfig forWriting(String folder, Args args) {
        MessageStoreConfig config = base(folder);
        config.setMappedFileSizeCommitLog(args.get("commitlog-file", 1 << 20));
        config.setMappedFileSizeConsumeQueue(args.get("cq-units", 1000) * 20);
        int slots = args.get("index-slots", 500);
        config.setMaxHashSlotNum(slots);
        config.setMaxIndexNum(slots * ENTRIES_PER_SLOT);
        config.setMessageIndexEnable(slots > 0);
        if (args.has("sync")) {
            config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        }
        if (args.has("cq-ext")) {
            config.setEnableConsumeQueueExt(true);
            config.setMappedFileSizeConsumeQueueExt(64 * 1024);
        }
        setAll(config, args);
        return config;
    }

    /** Sizes are read off the newest file of each kind; a folder without files of a kind gets the default. */
    static MessageStoreConfig forReading(String folder, Args args) throws IOException {
        MessageStoreConfig config = base(folder);
        long log = newestLength(new File(folder, "commitlog"), 0);
        if (log > 0) {
            config.setMappedFileSizeCommitLog((int) log);
        }
        long queue = newestLength(new File(folder, "consumequeue"), 2);
        config.setMappedFileSizeConsumeQueue(queue > 0 ? (int) queue : 20_000);
        long index = newestLength(new File(folder, "index"), 0);
        int slots = args.get("index-slots", index > 0 ? (int) ((index - 40) / (4 + 20 * ENTRIES_PER_SLOT))
            : 500);
        config.setMaxHashSlotNum(slots);
        config.setMaxIndexNum(args.get("index-entries", slots * ENTRIES_PER_SLOT));
        long ext = newestLength(new File(folder, "consumequeue_ext"), 2);
        if (ext > 0) {
            config.setEnableConsumeQueueExt(true);
            config.setMappedFileSizeConsumeQueueExt((int) ext);
        }
        setAll(config, args);
        return config;
    }

    private static void setAll(MessageStoreConfig config, Args args) {
        for (String pair : args.list("set", "")) {
            if (!pair.isEmpty()) {
                set(config, pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
        }
    }

    /** Sets any property of the store's own configuration by name. */
    static void set(Object config, String name, String value) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : config.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                Class<?> type = method.getParameterTypes()[0];
                Object typed = type == int.class ? Integer.valueOf(value)
                    : type == long.class ? Long.valueOf(value)
                    : type == boolean.class ? Boolean.valueOf(value)
                    : type == String.class ? value : null;
                if (typed != null) {
                    try {
                        method.invoke(config, typed);
                        return;
                    } catch (ReflectiveOperationException e) {
                        throw new IllegalArgumentException(name, e);
                    }
                }
            }
        }
        throw new IllegalArgumentException("no such setting: " + name);
    }

    private static MessageStoreConfig base(String folder) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + File.separator + "commitlog");
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        // Nothing may be deleted behind a test's back, whatever the hour and the age of the files.
        config.setFileReservedTime(24 * 365 * 50);
        return config;
    }

    private static long newestLength(File folder, int depth) {
        File[] files = folder.listFiles();
        if (files == null) {
            return 0;
        }
        Arrays.sort(files, (a, b) -> b.getName().compareTo(a.getName()));
        for (File file : files) {
            long length = depth > 0 ? newestLength(file, depth - 1) : file.length();
            if (length > 0) {
                return length;
            }
        }
        return 0;
    }
}
