package interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transaction --namesrv H:P --topic T [--group G] [--count 4] [--plan
 * commit,rollback,unknown:commit,unknown:rollback]
 * [--expect-checks N] [--timeout 60] [--quiet]
 * Message i follows plan entry i mod n: the local result, then (after a colon) the answer to the broker's
 * check.
 */
public final class Transaction {
    public static void main(String[] argv) {
        Host.once("Transaction", argv);
    }

    static boolean run(Args a, Out out) throws Exception {
        String[] plan = a.get("plan", "commit,rollback,unknown:commit,unknown:rollback").split(",");
        Map<String, String> later = new ConcurrentHashMap<>();
        AtomicInteger checks = new AtomicInteger();
        TransactionMQProducer p = Clients.transactional(a);
        p.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                String[] steps = plan[(Integer) arg % plan.length].split(":");
                later.put(Clients.uniq(m), steps.length > 1 ? steps[1] : steps[0]);
                out.event("local", "i", arg, "uniq", Clients.uniq(m), "result", steps[0]);
                return state(steps[0]);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                String answer = later.getOrDefault(Clients.uniq(m), "rollback");
                checks.incrementAndGet();
                out.event("check", "uniq", Clients.uniq(m), "topic", m.getTopic(), "body", Clients.body(m),
                        "answer", answer, "properties", m.getProperties());
                return state(answer);
            }
        });
        p.start();
        int bad = 0;
        int count = a.num("count", 4);
        for (int i = 0; i < count; i++) {
            try {
                TransactionSendResult r = p.sendMessageInTransaction(Clients.message(a, i), i);
                out.event("sent", "i", i, "status", r.getSendStatus(), "local", r.getLocalTransactionState(),
                        "uniq", r.getMsgId(),
                    "transactionId", r.getTransactionId(), "offset", r.getQueueOffset());
            } catch (Exception e) {
                bad++;
                out.event("error", "i", i, "text", String.valueOf(e.getMessage()).split("\n")[0]);
            }
        }
        long deadline = System.nanoTime() + a.num("timeout", 60) * 1000000000L;
        int expect = a.num("expect-checks", 0);
        while (checks.get() < expect && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
        Thread.sleep(500);
        p.shutdown();
        boolean ok = bad == 0 && checks.get() >= expect;
        out.event("summary", "ok", ok, "sent", count - bad, "failed", bad, "checks", checks.get());
        return ok;
    }

    private static LocalTransactionState state(String s) {
        return switch (s) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }
}
