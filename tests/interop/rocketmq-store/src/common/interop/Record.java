package interop;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** One commit log record, decoded by RocketMQ's own decoder. */
final class Record {
    final MessageExt message;
    final int layout;
    private final byte[] body;

    private Record(MessageExt message, int layout) {
        this.message = message;
        this.layout = layout;
        this.body = message.getBody() == null ? new byte[0] : message.getBody();
    }

    /** Null when the decoder or the CRC says no. */
    static Record decode(ByteBuffer bytes) {
        int layout = bytes.getInt(bytes.position() + 4) == 0xDAA320AB ? 2 : 1;
        MessageExt message = MessageDecoder.decode(bytes, true, false, false);
        if (message == null) {
            return null;
        }
        Record record = new Record(message, layout);
        return UtilAll.crc32(record.body) == message.getBodyCRC() ? record : null;
    }

    Map<String, Object> json(String kind, Long tagsCode) {
        Map<String, Object> line = Json.object("kind", kind,
            "topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset",
                message.getQueueOffset(),
            "physicalOffset", message.getCommitLogOffset(), "storeSize", message.getStoreSize(), "layout",
                layout);
        if (tagsCode != null) {
            line.put("tagsCode", tagsCode);
        }
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", new TreeMap<>(message.getProperties()));
        line.put("bodyLength", body.length);
        line.put("bodyCRC", message.getBodyCRC());
        line.put("bodySha256", sha256(body));
        if ((message.getSysFlag() & 1) != 0) {
            line.put("plainSha256", plainSha256());
        }
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeHost", host(message.getStoreHost()));
        line.put("sysFlag", message.getSysFlag());
        line.put("flag", message.getFlag());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return line;
    }

    private String plainSha256() {
        try {
            CompressionType type = CompressionType.findByValue((message.getSysFlag() >> 8) & 7);
            return sha256(CompressorFactory.getCompressor(type).decompress(body));
        } catch (java.io.IOException e) {
            return "cannot unpack: " + e.getMessage();
        }
    }

    private static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        String ip = inet.getAddress().getHostAddress();
        return (ip.indexOf(':') < 0 ? ip : "[" + ip + "]") + ":" + inet.getPort();
    }
}
