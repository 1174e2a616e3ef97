package interop;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Admin ARGS...: the real mqadmin command line, for example "Admin clusterList -n H:P". Its text goes to
 * stdout unchanged.
 */
public final class Admin {
    public static void main(String[] argv) {
        MQAdminStartup.main(argv);
        System.exit(0);
    }
}
