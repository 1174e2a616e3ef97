package interop;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.logging.ch.qos.logback.classic.Level;
import org.apache.rocketmq.logging.ch.qos.logback.classic.LoggerContext;
import org.apache.rocketmq.logging.ch.qos.logback.classic.spi.ILoggingEvent;
import org.apache.rocketmq.logging.ch.qos.logback.classic.spi.IThrowableProxy;
import org.apache.rocketmq.logging.ch.qos.logback.core.AppenderBase;
import org.apache.rocketmq.logging.org.slf4j.Logger;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Whatever is called differently in the 4.9 and the 5.x store; this is the 5.x side. */
final class Rmq {
    /** Newest record layout of this store: 2 means topics longer than 127 bytes. */
    static final int RECORD_VERSION = 2;
    static final boolean INNER_BATCH = true;

    private Rmq() {}

    static DefaultMessageStore create(MessageStoreConfig config) throws IOException {
        BrokerConfig broker = new BrokerConfig();
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        String[] batchTopics = new File(config.getStorePathRootDir(), "batchconsumequeue").list();
        for (String topic : batchTopics == null ? new String[0] : batchTopics) {
            topics.put(topic, batchTopic(topic));
        }
        topics.put(Generator.INNER_TOPIC, batchTopic(Generator.INNER_TOPIC));
        return new DefaultMessageStore(config, new BrokerStatsManager(broker),
            (topic, queueId, offset, tagsCode, time, bits, properties) -> { }, broker, topics);
    }

    private static TopicConfig batchTopic(String topic) {
        TopicConfig config = new TopicConfig(topic, 8, 8);
        config.getAttributes().put("queue.type", "BatchCQ");
        return config;
    }

    static MessageExtBrokerInner message(Msg from) {
        MessageExtBrokerInner to = new MessageExtBrokerInner();
        fill(to, from);
        MessageAccessor.setProperties(to, from.properties);
        delay(to);
        to.setPropertiesString(MessageDecoder.messageProperties2String(to.getProperties()));
        to.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(from.tags()));
        return to;
    }

    /** A 5.x store leaves delayed messages to a hook of the broker: this is what the hook does. */
    private static void delay(MessageExtBrokerInner message) {
        int type = MessageSysFlag.getTransactionValue(message.getSysFlag());
        if (message.getDelayTimeLevel() > 0 && type != MessageSysFlag.TRANSACTION_PREPARED_TYPE) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID,
                String.valueOf(message.getQueueId()));
            message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
            message.setQueueId(message.getDelayTimeLevel() - 1);
        }
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
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> topic
            : store.getConsumeQueueTable().entrySet()) {
            SortedMap<Integer, long[]> queues = all.computeIfAbsent(topic.getKey(), name -> new TreeMap<>());
            topic.getValue().forEach((id, queue) ->
                queues.put(id, new long[] {queue.getMinOffsetInQueue(), queue.getMaxOffsetInQueue()}));
        }
        return all;
    }

    /** {physical offset, size, tags code, queue offset, messages} of one consume queue unit, or null. */
    static long[] unit(DefaultMessageStore store, String topic, int queueId, long offset) {
        CqUnit unit = store.findConsumeQueue(topic, queueId).get(offset);
        return unit == null ? null
            : new long[] {unit.getPos(), unit.getSize(), unit.getTagsCode(), unit.getQueueOffset(),
                unit.getBatchNum()};
    }

    /** The store's own view of a record, as it dispatches it. */
    static DispatchRequest check(DefaultMessageStore store, ByteBuffer bytes) {
        return store.getCommitLog().checkMessageAndReturnSize(bytes, true, false);
    }

    /** {lower, upper} queue offset for a store time. */
    static long[] byTime(DefaultMessageStore store, String topic, int queueId, long timestamp) {
        return new long[] {
            store.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.LOWER),
            store.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.UPPER)};
    }

    static int deleteOldFiles(DefaultMessageStore store, long ageMillis) {
        return store.getCommitLog().deleteExpiredFile(ageMillis, 0, 1000, false, 1000);
    }

    /** Keeps warnings and errors of the store, with its info lines when asked; nothing is printed. */
    static void captureLog(List<String> lines, boolean verbose) {
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.reset();
        AppenderBase<ILoggingEvent> appender = new AppenderBase<>() {
            @Override
            protected void append(ILoggingEvent event) {
                IThrowableProxy thrown = event.getThrowableProxy();
                synchronized (lines) {
                    lines.add(event.getLevel() + " " + event.getFormattedMessage()
                        + (thrown == null ? "" : " (" + thrown.getClassName() + ": " + thrown.getMessage()
                            + ")"));
                }
            }
        };
        appender.setContext(context);
        appender.start();
        var root = context.getLogger(Logger.ROOT_LOGGER_NAME);
        root.setLevel(verbose ? Level.INFO : Level.WARN);
        root.addAppender(appender);
    }
}
