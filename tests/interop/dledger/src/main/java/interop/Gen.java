package interop;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.store.DLedgerStore;
import java.lang.reflect.Method;
import java.util.Map;

/** The few API differences between generation A (0.3.x) and B (0.4.0), bridged by reflection. */
final class Gen {
    /** Generation A names accepted for generation B. */
    private static final Map<String, String> RENAMED = Map.of("enableBatchPush", "enableBatchAppend",
        "maxBatchPushSize", "maxBatchAppendSize");

    private Gen() {
    }

    /** Sets any DLedgerConfig property by its bean name. */
    static void set(DLedgerConfig config, String name, String value) {
        if (!trySet(config, name, value) && !(RENAMED.containsKey(name) && trySet(config, RENAMED.get(name),
            value))) {
            throw new IllegalArgumentException("no configuration property " + name);
        }
    }

    private static boolean trySet(DLedgerConfig config, String name, String value) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method m : DLedgerConfig.class.getMethods()) {
            if (m.getName().equals(setter) && m.getParameterCount() == 1) {
                Class<?> t = m.getParameterTypes()[0];
                Object v = t == int.class || t == Integer.class ? (Object) Integer.valueOf(value)
                    : t == long.class || t == Long.class ? (Object) Long.valueOf(value)
                    : t == boolean.class || t == Boolean.class ? (Object) Boolean.valueOf(value) : value;
                try {
                    m.invoke(config, v);
                    return true;
                } catch (ReflectiveOperationException e) {
                    throw new IllegalArgumentException(name, e);
                }
            }
        }
        return false;
    }

    static long begin(DLedgerStore store) {
        Long a = call(store, "getLedgerBeginIndex");
        return a != null ? a : call(store, "getLedgerBeforeBeginIndex") + 1;
    }

    static long committed(DLedgerStore store, MemberState state) {
        Long a = call(store, "getCommittedIndex");
        return a != null ? a : call(state, "getCommittedIndex");
    }

    static Long call(Object target, String getter) {
        try {
            Method m = target.getClass().getMethod(getter);
            m.setAccessible(true);
            return ((Number) m.invoke(target)).longValue();
        } catch (NoSuchMethodException e) {
            return null;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(getter, e);
        }
    }

    static long end(DLedgerServer server) {
        return server.getDLedgerStore().getLedgerEndIndex();
    }
}
