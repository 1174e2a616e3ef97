package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Allocate: prints what each strategy gives to each consumer, one JSON line for each case. */
public final class Allocate {
    private static final String[] BROKERS = {"broker-a", "r1@broker-b", "r2@broker-c", "r1@x@", "@y",
            "Ünï@z"};

    public static void main(String[] args) {
        Out out = Out.ofProcess();
        int[][] sizes = {{1, 1}, {1, 3}, {2, 2}, {4, 3}, {8, 1}, {8, 5}, {16, 7}, {3, 16}, {64, 9}};
        for (int[] size : sizes) {
            List<MessageQueue> queues = new ArrayList<>();
            for (int i = 0; i < size[0]; i++) {
                queues.add(new MessageQueue(i % 2 == 0 ? "Topic" : "%RETRY%gruppé",
                        BROKERS[i % BROKERS.length], i / BROKERS.length));
            }
            java.util.Collections.sort(queues);
            List<String> ids = new ArrayList<>();
            for (int i = 0; i < size[1]; i++) {
                String room = i % 3 == 0 ? "r1" : i % 3 == 1 ? "r2" : "r3";
                ids.add(room + ".10.0.0." + i + "@" + (4242 + i * 17) + "#" + (1234567890123L * (i + 1)));
            }
            if (size[1] == 9) {
                ids.add(ids.get(4));
                ids.add("r1.\uD83D\uDE80");
                ids.add("r1.\uFF21");
            }
            java.util.Collections.sort(ids);
            AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
            HashSet<String> rooms = new HashSet<>();
            rooms.add("r1");
            rooms.add("r2");
            rooms.add("");
            room.setConsumeridcs(rooms);
            var resolver = new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override public String brokerDeployIn(MessageQueue queue) {
                    String name = queue.getBrokerName();
                    return name.indexOf('@') > 0 ? name.substring(0, 2) : "r9";
                }

                @Override public String consumerDeployIn(String id) {
                    return id.substring(0, 2);
                }
            };
            show(out, new AllocateMessageQueueAveragely(), queues, ids);
            show(out, new AllocateMessageQueueAveragelyByCircle(), queues, ids);
            show(out, room, queues, ids);
            show(out, new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), resolver), queues,
                    ids);
            show(out, new AllocateMessageQueueConsistentHash(), queues, ids);
        }
    }

    private static void show(Out out, AllocateMessageQueueStrategy strategy, List<MessageQueue> queues,
            List<String> ids) {
        StringBuilder line = new StringBuilder("{\"strategy\":\"" + strategy.getName() + "\",\"queues\":"
                + json(queues) + ",\"shares\":[");
        for (int i = 0; i < ids.size(); i++) {
            String share = json(strategy.allocate("g", ids.get(i), queues, ids));
            line.append(i == 0 ? "" : ",").append("[\"" + ids.get(i) + "\"," + share + "]");
        }
        out.text(line.append("]}").toString());
    }

    private static String json(List<MessageQueue> queues) {
        StringBuilder text = new StringBuilder("[");
        for (MessageQueue queue : queues) {
            text.append(text.length() == 1 ? "" : ",").append("[\"" + queue.getTopic() + "\",\""
                    + queue.getBrokerName() + "\"," + queue.getQueueId() + "]");
        }
        return text.append("]").toString();
    }

    private Allocate() { }
}
