package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Range read from the leader: --group G --peers P [--to ID] [--begin I] [--end J]; without --end reads up
 * to the first refusal. */
public final class Get {
    private Get() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        Rpc rpc = new Rpc(args.need("group"), args.need("peers"));
        String node = args.has("to") ? args.get("to", "") : rpc.waitLeader(args.num("wait-leader", 30_000));
        long next = args.num("begin", 0);
        long end = args.num("end", Long.MAX_VALUE - 1);
        Deque<CompletableFuture<JSONObject>> asked = new ArrayDeque<>();
        boolean open = true;
        int status = 0;
        while (true) {
            while (open && asked.size() < 64 && next <= end) {
                JSONObject r = rpc.request(node);
                r.put("beginIndex", next++);
                r.put("maxSize", 0);
                asked.add(rpc.send(Rpc.GET, r, 3000));
            }
            if (asked.isEmpty()) {
                break;
            }
            JSONObject answer = asked.poll().get(4, TimeUnit.SECONDS);
            JSONArray entries = answer.getJSONArray("entries");
            if (!open) {
                continue;
            }
            if (entries == null || entries.isEmpty()) {
                open = false;
                if (args.has("end") || answer.getIntValue("code") != 410) {
                    status = 1;
                    Out.json("refused", answer);
                }
                continue;
            }
            JSONObject e = entries.getJSONObject(0);
            byte[] body = e.getBytes("body");
            Out.json("index", e.get("index"), "term", e.get("term"), "pos", e.get("pos"), "magic",
                e.get("magic"), "size", e.get("size"),
                "bodyLen", body.length, "sha256", Body.hex(body));
        }
        rpc.close();
        System.exit(status);
    }
}
