package interop;

import com.alibaba.fastjson.JSONObject;

/** Leadership transfer: --group G --peers P --to ID [--from ID] [--term T]. Leader and term are looked up
 * when absent. */
public final class Transfer {
    private Transfer() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        Rpc rpc = new Rpc(args.need("group"), args.need("peers"));
        String from = args.has("from") ? args.get("from", "") : rpc.waitLeader(30_000);
        JSONObject r = rpc.request(from);
        r.put("transferId", from);
        r.put("transfereeId", args.need("to"));
        r.put("takeLeadershipLedgerIndex", 0);
        r.put("term", args.has("term") ? args.num("term", 0) : rpc.term(from));
        long start = System.currentTimeMillis();
        JSONObject answer = rpc.call(Rpc.TRANSFER, r, 10_000);
        Out.json("from", from, "to", args.need("to"), "term", r.get("term"), "answer", answer, "ms",
            System.currentTimeMillis() - start);
        rpc.close();
        System.exit(answer.getIntValue("code") == 200 ? 0 : 1);
    }
}
