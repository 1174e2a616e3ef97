package interop;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What lies in a store folder before Java opens it; reads only. */
final class Snapshot {
    final boolean abort;
    final List<Long> checkpoint = new ArrayList<>();
    /**
     * First byte after the last non-zero byte of the commit log; a blank record counts up to the end of its
     * file.
     */
    final long logEnd;
    /** "topic/queue" to the first queue offset after the last non-zero unit. */
    final Map<String, Long> queueEnds = new TreeMap<>();
    final List<String> indexFiles;

    Snapshot(File folder) throws IOException {
        abort = new File(folder, "abort").exists();
        File file = new File(folder, "checkpoint");
        if (file.length() >= 40) {
            try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
                for (int i = 0; i < 5; i++) {
                    checkpoint.add(in.readLong());
                }
            }
        }
        long end = 0;
        for (File segment : files(new File(folder, "commitlog"))) {
            long used = used(segment);
            if (used > 0) {
                end = Long.parseLong(segment.getName()) + used;
            }
        }
        logEnd = end;
        for (File topic : files(new File(folder, "consumequeue"))) {
            for (File queue : files(topic)) {
                long units = 0;
                for (File segment : files(queue)) {
                    long used = used(segment);
                    if (used > 0) {
                        units = (Long.parseLong(segment.getName()) + used + 19) / 20;
                    }
                }
                queueEnds.put(topic.getName() + "/" + queue.getName(), units);
            }
        }
        indexFiles = files(new File(folder, "index")).stream().map(File::getName).toList();
    }

    static List<File> files(File folder) {
        File[] files = folder.listFiles();
        if (files == null) {
            return List.of();
        }
        Arrays.sort(files);
        return List.of(files);
    }

    private static long used(File file) throws IOException {
        try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
            ByteBuffer bytes = in.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, in.length());
            int end = bytes.limit();
            while (end >= 8 && bytes.getLong(end - 8) == 0) {
                end -= 8;
            }
            while (end > 0 && bytes.get(end - 1) == 0) {
                end--;
            }
            return end;
        }
    }
}
