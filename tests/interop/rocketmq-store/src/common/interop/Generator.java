package interop;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Messages drawn from a seed: the same seed and options give the same messages. */
final class Generator {
    /** The one topic of the kit whose queues are batch queues (5.x). */
    static final String INNER_TOPIC = "interop_inner_batch";

    private static final String[] WORDS = {
        "ledger", "offset", "queue", "größe", "naïve", "журнал", "消息", "очередь", "🚀", "ｆｕｌｌ", "e\u0301",
            "tab\tbed", "\"quoted\""};
    private static final String[] TAGS = {"TagA", "TagB", "TagC", "красный", "标签", "polygenelubricants", "a",
        ""};

    final Random random;
    private final List<String> topics;
    private final int queues;
    private final int maxBody;
    private long clock;

    Generator(long seed, List<String> topics, int queues, int maxBody) {
        this.random = new Random(seed);
        this.topics = topics;
        this.queues = queues;
        this.maxBody = maxBody;
        this.clock = 1_700_000_000_000L + Math.floorMod(seed, 1_000_000L) * 1000;
    }

    /** A plain message: any topic and queue, perhaps tags, keys and user properties. */
    Msg single() {
        Msg m = envelope();
        if (random.nextInt(8) != 0) {
            m.properties.put("TAGS", TAGS[random.nextInt(TAGS.length - 1)]);
        }
        int keys = random.nextInt(4);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < keys; i++) {
            text.append(i > 0 ? " " : "").append("key-").append(random.nextInt(500));
        }
        if (keys > 0) {
            m.properties.put("KEYS", text.toString());
        }
        m.properties.put("UNIQ_KEY", String.format("%016X%016X", random.nextLong(), random.nextLong()));
        for (int i = random.nextInt(4); i > 0; i--) {
            m.properties.put("user" + i, WORDS[random.nextInt(WORDS.length)] + random.nextInt(10));
        }
        m.flag = random.nextInt(4) == 0 ? random.nextInt() : 0;
        m.reconsumeTimes = random.nextInt(10) == 0 ? random.nextInt(16) : 0;
        m.body = body(random.nextInt(20) == 0 ? 0 : 1 + random.nextInt(maxBody));
        return m;
    }

    /** Two to sixteen messages for one queue. */
    List<Msg> batch() {
        Msg head = envelope();
        return java.util.stream.IntStream.range(0, 2 + random.nextInt(15)).mapToObj(i -> {
            Msg part = single();
            part.topic = head.topic;
            part.queueId = head.queueId;
            part.body = part.body.length > 0 ? part.body : new byte[] {'x'};
            return part;
        }).toList();
    }

    /** Body packed as a client would pack it; the packer is RocketMQ's own. */
    /** A body of words, or of so many bytes before it is compressed. */
    Msg compressed(String algorithm, int plainBytes) throws IOException {
        CompressionType type = CompressionType.of(algorithm.toUpperCase());
        Msg m = single();
        int count = plainBytes > 0 ? plainBytes / 2 + 1 : 500 + random.nextInt(8000);
        byte[] plain = words(count).getBytes(StandardCharsets.UTF_8);
        plain = plainBytes > 0 ? Arrays.copyOf(plain, plainBytes) : plain;
        m.body = CompressorFactory.getCompressor(type).compress(plain, 5);
        m.sysFlag |= MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag();
        return m;
    }

    Msg delayed() {
        Msg m = single();
        m.properties.put("DELAY", String.valueOf(1 + random.nextInt(18)));
        return m;
    }

    Msg big(int bytes) {
        Msg m = single();
        m.body = body(bytes / 2 + random.nextInt(bytes / 2));
        return m;
    }

    /** born: 1, store: 2, both: 3. */
    Msg ipv6(int which) {
        Msg m = single();
        if ((which & 1) != 0) {
            m.bornHost = address(16);
        }
        if ((which & 2) != 0) {
            m.storeHost = address(16);
        }
        return m;
    }

    /** A retry topic with a name that needs the second record layout. */
    Msg longTopic() {
        Msg m = single();
        m.topic = "%RETRY%" + "g".repeat(121 + random.nextInt(127));
        m.queueId = 0;
        return m;
    }

    /** One record that holds a whole batch, for a topic with batch queues. */
    Msg innerBatch() {
        List<Msg> parts = batch();
        Msg m = envelope();
        m.topic = INNER_TOPIC;
        m.properties.put("TAGS", "TagA");
        m.properties.put("INNER_NUM", String.valueOf(parts.size()));
        m.sysFlag |= 0x40 | 0x80;
        m.body = Rmq.batchBody(parts);
        return m;
    }

    private Msg envelope() {
        Msg m = new Msg();
        m.topic = topics.get(random.nextInt(topics.size()));
        m.queueId = random.nextInt(queues);
        m.bornHost = address(4);
        m.storeHost = storeHost();
        clock += random.nextInt(50);
        m.bornTimestamp = clock;
        return m;
    }

    static InetSocketAddress storeHost() {
        return host(new byte[] {10, 0, 0, 7}, 10911);
    }

    private InetSocketAddress address(int bytes) {
        byte[] raw = new byte[bytes];
        random.nextBytes(raw);
        if (bytes == 16) {
            raw[0] = 0x20;
            raw[1] = 0x01;
        } else {
            raw[0] = (byte) 192;
        }
        return host(raw, 1024 + random.nextInt(60000));
    }

    private static InetSocketAddress host(byte[] raw, int port) {
        try {
            return new InetSocketAddress(InetAddress.getByAddress(raw), port);
        } catch (java.net.UnknownHostException e) {
            throw new IllegalStateException(e);
        }
    }

    private byte[] body(int length) {
        byte[] bytes = new byte[length];
        switch (random.nextInt(3)) {
            case 0 -> random.nextBytes(bytes);
            case 1 -> {
                return words(Math.max(1, length / 8)).getBytes(StandardCharsets.UTF_8);
            }
            default -> {
                for (int i = 0; i < length; i++) {
                    bytes[i] = (byte) ('a' + (i * 7 + length) % 26);
                }
            }
        }
        return bytes;
    }

    private String words(int count) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < count; i++) {
            text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
        }
        return text.toString();
    }
}
