package interop;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.logging.InternalLogger;
import org.apache.rocketmq.logging.InternalLoggerFactory;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Whatever is called differently in the 4.9 and the 5.x store; this is the 4.9 side. */
final class Rmq {
    static final int RECORD_VERSION = 1;
    static final boolean INNER_BATCH = false;

    private Rmq() {}

    static DefaultMessageStore create(MessageStoreConfig config) throws IOException {
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queueId, offset, tagsCode, time, bits, properties) -> { }, new BrokerConfig()) {
            /** Due delayed messages must stay where they are. */
            @Override
            public void handleScheduleMessageService(BrokerRole role) {
            }
        };
        closeReplication(store);
        return store;
    }

    /** Takes the place of the replication service, so that no port is opened. */
    private static void closeReplication(DefaultMessageStore store) throws IOException {
        HAService quiet = new HAService(store) {
            @Override
            public void start() {
            }

            @Override
            public void shutdown() {
            }
        };
        try {
            Field field = DefaultMessageStore.class.getDeclaredField("haService");
            field.setAccessible(true);
            field.set(store, quiet);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static MessageExtBrokerInner message(Msg from) {
        MessageExtBrokerInner to = new MessageExtBrokerInner();
        fill(to, from);
        MessageAccessor.setProperties(to, from.properties);
        to.setPropertiesString(MessageDecoder.messageProperties2String(to.getProperties()));
        to.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(from.tags()));
        return to;
    }

    private static void fill(MessageExt to, Msg from) {
        to.setTopic(from.topic);
        to.setQueueId(from.queueId);
        to.setFlag(from.flag);
        to.setSysFlag(from.sysFlag);
        to.setBody(from.body);
        to.setBornTimestamp(from.bornTimestamp);
        to.setBornHost(from.bornHost);
        to.setStoreHost(from.storeHost);
        to.setReconsumeTimes(from.reconsumeTimes);
        to.setPreparedTransactionOffset(from.preparedTransactionOffset);
    }

    static PutMessageResult put(DefaultMessageStore store, Msg message) {
        return store.putMessage(message(message));
    }

    static CompletableFuture<PutMessageResult> putAsync(DefaultMessageStore store, Msg message) {
        return store.asyncPutMessage(message(message));
    }

    /** Head gives topic, queue, hosts and times; every part gives body, flag and properties. */
    static PutMessageResult putBatch(DefaultMessageStore store, Msg head, List<Msg> parts) {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, head);
        batch.setBody(batchBody(parts));
        return store.putMessages(batch);
    }

    static byte[] batchBody(List<Msg> parts) {
        return MessageDecoder.encodeMessages(parts.stream().map(part -> {
            Message message = new Message(part.topic, part.body);
            message.setFlag(part.flag);
            MessageAccessor.setProperties(message, part.properties);
            return message;
        }).toList());
    }

    /** topic, queue, {first offset, end offset} of every consume queue. */
    static SortedMap<String, SortedMap<Integer, long[]>> queues(DefaultMessageStore store) {
        SortedMap<String, SortedMap<Integer, long[]>> all = new TreeMap<>();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueue>> topic
            : store.getConsumeQueueTable().entrySet()) {
            SortedMap<Integer, long[]> queues = all.computeIfAbsent(topic.getKey(), name -> new TreeMap<>());
            topic.getValue().forEach((id, queue) ->
                queues.put(id, new long[] {queue.getMinOffsetInQueue(), queue.getMaxOffsetInQueue()}));
        }
        return all;
    }

    /** {physical offset, size, tags code, queue offset, messages} of one consume queue unit, or null. */
    static long[] unit(DefaultMessageStore store, String topic, int queueId, long offset) {
        SelectMappedBufferResult result = store.findConsumeQueue(topic, queueId).getIndexBuffer(offset);
        if (result == null) {
            return null;
        }
        try {
            return new long[] {result.getByteBuffer().getLong(), result.getByteBuffer().getInt(),
                result.getByteBuffer().getLong(), offset, 1};
        } finally {
            result.release();
        }
    }

    /** The store's own view of a record, as it dispatches it. */
    static DispatchRequest check(DefaultMessageStore store, ByteBuffer bytes) {
        return store.getCommitLog().checkMessageAndReturnSize(bytes, true);
    }

    /** The 4.9 store knows one answer for a store time only. */
    static long[] byTime(DefaultMessageStore store, String topic, int queueId, long timestamp) {
        return new long[] {store.getOffsetInQueueByTime(topic, queueId, timestamp)};
    }

    static int deleteOldFiles(DefaultMessageStore store, long ageMillis) {
        return store.getCommitLog().deleteExpiredFile(ageMillis, 0, 1000, false);
    }

    /** Keeps warnings and errors of the store, with its info lines when asked; nothing is printed. */
    static void captureLog(List<String> lines, boolean verbose) {
        InternalLogger logger = (InternalLogger) Proxy.newProxyInstance(Rmq.class.getClassLoader(),
            new Class<?>[] {InternalLogger.class}, (proxy, method, args) -> {
                String level = method.getName().toUpperCase();
                if (level.equals("WARN") || level.equals("ERROR") || verbose && level.equals("INFO")) {
                    synchronized (lines) {
                        lines.add(level + " " + format(args));
                    }
                }
                return method.getName().equals("getName") ? "interop" : null;
            });
        class Factory extends InternalLoggerFactory {
            {
                doRegister();
            }

            @Override
            protected void shutdown() {
            }

            @Override
            protected InternalLogger getLoggerInstance(String name) {
                return logger;
            }

            @Override
            protected String getLoggerType() {
                return "interop";
            }
        }
        new Factory();
        InternalLoggerFactory.setCurrentLoggerType("interop");
    }

    private static String format(Object[] args) {
        StringBuilder text = new StringBuilder(String.valueOf(args[0]));
        Object[] values = args.length > 1 && args[1] instanceof Object[] array ? array
            : java.util.Arrays.copyOfRange(args, 1, args.length);
        for (Object value : values) {
            int hole = text.indexOf("{}");
            if (hole >= 0) {
                text.replace(hole, hole + 2, String.valueOf(value));
            } else {
                text.append(' ').append(value);
            }
        }
        return text.toString();
    }
}
