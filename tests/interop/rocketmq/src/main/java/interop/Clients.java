package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Settings shared by all client programs. */
final class Clients {
    /** How long a request may take: a busy machine must not fail what is not about time. */
    private static final int PATIENCE_MS = 60_000;

    private Clients() {
    }

    static <T extends ClientConfig> T common(T c, Args a, String instance) {
        c.setNamesrvAddr(a.need("namesrv"));
        c.setClientIP(a.get("client-ip", "127.0.0.1"));
        String own = "kit-" + ProcessHandle.current().pid() + "-" + a.run;
        c.setInstanceName(a.get("instance", own) + "-" + instance);
        c.setVipChannelEnabled(a.has("vip"));
        c.setPollNameServerInterval(a.num("poll", 30_000));
        c.setMqClientApiTimeout(PATIENCE_MS);
        return c;
    }

    /** Signs requests; null without an --access-key. */
    static RPCHook signer(Args a) {
        String key = a.get("access-key", null);
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, a.need("secret-key")));
    }

    static DefaultMQPushConsumer consumer(Args a, String instance) {
        AllocateMessageQueueAveragely strategy = new AllocateMessageQueueAveragely();
        boolean trace = a.has("trace");
        RPCHook signer = signer(a);
        return common(new DefaultMQPushConsumer(a.need("group"), signer, strategy, trace, null), a, instance);
    }

    /** A producer reads its codec from the system's properties when it is made. */
    static synchronized DefaultMQProducer producer(Args a) {
        String group = a.get("group", "interop_producer");
        System.setProperty("rocketmq.message.compressType", a.get("codec", "ZLIB"));
        return settle(new DefaultMQProducer(group, signer(a), a.has("trace"), null), a);
    }

    static TransactionMQProducer transactional(Args a) {
        return settle(new TransactionMQProducer(a.get("group", "interop_tx"), signer(a)), a);
    }

    private static <P extends DefaultMQProducer> P settle(P p, Args a) {
        common(p, a, "p");
        p.setSendMsgTimeout(a.num("send-timeout", PATIENCE_MS));
        p.setRetryTimesWhenSendFailed(a.num("retries", 2));
        p.setRetryTimesWhenSendAsyncFailed(a.num("retries", 2));
        p.setDefaultTopicQueueNums(a.num("queues", 4));
        return p;
    }

    /**
     * Message number i: body "<prefix>-<i>" padded with dots to --size, or to the sizes of a list in turn;
     * key "<prefix>-<i>"; tag chosen round robin from --tags.
     */
    static Message message(Args a, int i) {
        String prefix = a.get("prefix", "m");
        StringBuilder body = new StringBuilder(prefix + "-" + i);
        String[] sizes = a.get("size", "0").split(",");
        int size = Integer.parseInt(sizes[i % sizes.length]);
        while (body.length() < size) {
            body.append('.');
        }
        Message m = new Message(a.need("topic"), body.toString().getBytes());
        m.setKeys(prefix + "-" + i);
        String[] tags = a.get("tags", "").split(",");
        if (!tags[0].isEmpty()) {
            m.setTags(tags[i % tags.length]);
        }
        a.pairs("property").forEach((k, v) -> m.putUserProperty((String) k, ((String) v).replace("%i",
                Integer.toString(i))));
        if (a.num("delay-level", 0) > 0) {
            m.setDelayTimeLevel(a.num("delay-level", 0));
        }
        return m;
    }

    static String uniq(Message m) {
        return m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
    }

    static String body(Message m) {
        String s = new String(m.getBody());
        return s.length() > 64 ? s.substring(0, 64) : s;
    }

    static void received(Out out, String event, int instance, MessageExt m) {
        String id = uniq(m);
        out.event(event, "instance", instance, "topic", m.getTopic(), "broker", m.getBrokerName(), "queue",
                m.getQueueId(), "offset", m.getQueueOffset(),
            "uniq", id, "keys", m.getKeys(), "tags", m.getTags(), "reconsume", m.getReconsumeTimes(), "size",
                    m.getBody().length,
            "body", body(m), "physical", m.getCommitLogOffset(), "properties", m.getProperties());
    }
}
