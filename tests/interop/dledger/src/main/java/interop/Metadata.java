package interop;

import com.alibaba.fastjson.JSONObject;

/** --group G --peers P: METADATA of every node and its term (learnt from a refused heartbeat), one JSON
 * line per node. */
public final class Metadata {
    private Metadata() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        if (args.has("help")) {
            Out.line("ok");
            return;
        }
        Rpc rpc = new Rpc(args.need("group"), args.need("peers"));
        if (args.has("wait-leader")) {
            rpc.waitLeader(args.num("wait-leader", 30_000));
        }
        for (String id : rpc.peers.keySet()) {
            Object answer;
            try {
                answer = rpc.call(Rpc.METADATA, rpc.request(id), 1500);
            } catch (Exception e) {
                answer = null;
            }
            Out.json("id", id, "term", answer == null ? null : rpc.term(id), "answer", answer);
            if (args.has("pull")) {
                JSONObject pull = rpc.request(id);
                pull.put("beginIndex", 0);
                pull.put("nodeId", id);
                Out.json("id", id, "pull", rpc.call(Rpc.PULL, pull, 1500));
            }
        }
        rpc.close();
        System.exit(0);
    }
}
