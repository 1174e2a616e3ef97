package interop;

import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Query --namesrv H:P --topic T (--key K | --id OFFSET_MSG_ID_OR_UNIQ_KEY | --offsets) [--expect N] */
public final class Query {
    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        String topic = a.need("topic");
        DefaultMQProducer p = Clients.producer(a);
        p.start();
        int found = 0;
        try {
            if (a.has("offsets")) {
                for (MessageQueue q : p.fetchPublishMessageQueues(topic)) {
                    Out.event("queue", "broker", q.getBrokerName(), "queue", q.getQueueId(), "min",
                            p.minOffset(q), "max", p.maxOffset(q),
                        "earliest", p.earliestMsgStoreTime(q), "atTimeZero", p.searchOffset(q, 0), "atNow",
                                p.searchOffset(q, System.currentTimeMillis()));
                    found++;
                }
            } else {
                List<MessageExt> list = a.get("id", null) != null ? List.of(p.viewMessage(topic,
                        a.need("id")))
                    : p.queryMessage(topic, a.need("key"), 64, 0, Long.MAX_VALUE).getMessageList();
                for (MessageExt m : list) {
                    Clients.received("message", 0, m);
                    found++;
                }
            }
        } catch (Exception e) {
            Out.event("error", "type", e.getClass().getSimpleName(), "text",
                    String.valueOf(e.getMessage()).split("\n")[0]);
        }
        p.shutdown();
        boolean ok = found >= a.num("expect", 1);
        Out.event("summary", "ok", ok, "found", found);
        System.exit(ok ? 0 : 1);
    }
}
