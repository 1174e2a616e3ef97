package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Bench --namesrv H:P --topic T --mode sync|async|batch|drain [--size 256] [--warmup 3] [--seconds 5]
 * [--in-flight 1024] [--batch 32] [--count N] [--group G] Rates of one producer or one push consumer. A
 * sending mode runs for --warmup and then --seconds, which are measured; "sent" and "stored" count all, and
 * drain reads --count messages of a topic from its start.
 */
public final class Bench {
    private static final Out OUT = Out.ofProcess();
    private static final LongAdder STORED = new LongAdder();
    private static final LongAdder FAILED = new LongAdder();

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        boolean ok = a.need("mode").equals("drain") ? drain(a) : send(a);
        System.exit(ok ? 0 : 1);
    }

    private static boolean send(Args a) throws Exception {
        DefaultMQProducer producer = Clients.producer(a);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        String mode = a.need("mode");
        int batch = mode.equals("batch") ? a.num("batch", 32) : 1;
        int room = a.num("in-flight", 1024);
        Semaphore inFlight = new Semaphore(room);
        long sent = 0;
        long warm = System.nanoTime() + a.num("warmup", 3) * 1_000_000_000L;
        while (System.nanoTime() < warm) {
            sent += one(producer, a, mode, batch, inFlight);
        }
        long before = STORED.sum();
        long begin = System.nanoTime();
        long end = begin + a.num("seconds", 5) * 1_000_000_000L;
        while (System.nanoTime() < end) {
            sent += one(producer, a, mode, batch, inFlight);
        }
        long measured = STORED.sum() - before;
        double seconds = (System.nanoTime() - begin) / 1e9;
        boolean all = inFlight.tryAcquire(room, 30, TimeUnit.SECONDS);
        boolean ok = all && FAILED.sum() == 0 && STORED.sum() == sent;
        OUT.event("summary", "ok", ok, "mode", mode, "perSecond", measured / seconds, "sent", sent, "stored",
                STORED.sum(), "failed", FAILED.sum());
        producer.shutdown();
        return ok;
    }

    private static int one(DefaultMQProducer producer, Args a, String mode, int batch, Semaphore inFlight)
            throws Exception {
        if (mode.equals("async")) {
            inFlight.acquire();
            producer.send(message(a), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    count(result, 1);
                    inFlight.release();
                }

                @Override
                public void onException(Throwable problem) {
                    FAILED.increment();
                    inFlight.release();
                }
            });
        } else if (mode.equals("batch")) {
            List<Message> messages = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                messages.add(message(a));
            }
            count(producer.send(messages), batch);
        } else {
            count(producer.send(message(a)), 1);
        }
        return batch;
    }

    private static Message message(Args a) {
        return new Message(a.need("topic"), new byte[a.num("size", 256)]);
    }

    private static void count(SendResult result, int messages) {
        (result.getSendStatus() == SendStatus.SEND_OK ? STORED : FAILED).add(messages);
    }

    private static boolean drain(Args a) throws Exception {
        long wanted = a.num("count", 100_000);
        CountDownLatch done = new CountDownLatch(1);
        AtomicLong begin = new AtomicLong();
        AtomicLong got = new AtomicLong();
        DefaultMQPushConsumer consumer = Clients.common(new DefaultMQPushConsumer(a.need("group")), a, "c");
        Compat.fromFirst(consumer);
        consumer.subscribe(a.need("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            begin.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = done.await(a.num("seconds", 60), TimeUnit.SECONDS);
        double seconds = (System.nanoTime() - begin.get()) / 1e9;
        boolean ok = all && got.get() == wanted;
        OUT.event("summary", "ok", ok, "mode", "drain", "perSecond", got.get() / seconds, "stored",
                got.get());
        consumer.shutdown();
        return ok;
    }
}
