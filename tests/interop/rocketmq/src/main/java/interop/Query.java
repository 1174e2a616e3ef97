package interop;

import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Query --namesrv H:P --topic T (--key K | --id OFFSET_MSG_ID_OR_UNIQ_KEY | --offsets) [--expect N]
 * [--within SECONDS]
 * --within: ask again for so long where nothing is found; an index may lag.
 */
public final class Query {
    public static void main(String[] argv) {
        Host.once("Query", argv);
    }

    static boolean run(Args a, Out out) throws Exception {
        String topic = a.need("topic");
        DefaultMQProducer p = Clients.producer(a);
        p.start();
        long deadline = System.nanoTime() + a.num("within", 0) * 1000000000L;
        int found = 0;
        while (true) {
            try {
                found = a.has("offsets") ? offsets(p, topic, out) : messages(p, topic, a, out);
                break;
            } catch (Exception e) {
                if (System.nanoTime() >= deadline) {
                    out.event("error", "type", e.getClass().getSimpleName(), "text",
                            String.valueOf(e.getMessage()).split("\n")[0]);
                    break;
                }
                Thread.sleep(100);
            }
        }
        p.shutdown();
        boolean ok = found >= a.num("expect", 1);
        out.event("summary", "ok", ok, "found", found);
        return ok;
    }

    private static int offsets(DefaultMQProducer p, String topic, Out out) throws Exception {
        List<MessageQueue> queues = p.fetchPublishMessageQueues(topic);
        for (MessageQueue q : queues) {
            out.event("queue", "broker", q.getBrokerName(), "queue", q.getQueueId(), "min", p.minOffset(q),
                    "max", p.maxOffset(q), "earliest", p.earliestMsgStoreTime(q),
                    "atTimeZero", p.searchOffset(q, 0), "atNow",
                    p.searchOffset(q, System.currentTimeMillis()));
        }
        return queues.size();
    }

    private static int messages(DefaultMQProducer p, String topic, Args a, Out out) throws Exception {
        List<MessageExt> list = a.get("id", null) != null ? List.of(p.viewMessage(topic, a.need("id")))
            : p.queryMessage(topic, a.need("key"), 64, 0, Long.MAX_VALUE).getMessageList();
        for (MessageExt m : list) {
            Clients.received(out, "message", 0, m);
        }
        return list.size();
    }
}
