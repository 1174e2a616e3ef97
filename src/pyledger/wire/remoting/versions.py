"""Versions of peers: each release has a number, and some answers depend on it.

From 4.0.0 on a release X.Y.Z has two numbers, one for its snapshot and the next for itself.

Source: RocketMQ common/.../MQVersion.java.
"""

CURRENT_VERSION = 479
"""The version that we send: 5.3.3, whose protocol this is."""

V3_0_11 = 37
V3_1_8_SNAPSHOT = 62
V3_4_9 = 121
V4_9_3 = 399
V4_9_4 = 401
V5_0_0 = 413
V5_3_1 = 475

FIRST_REGULAR = 212
HIGHER_VERSION = 612
EARLIER = {0: "V3_0_0_SNAPSHOT", 28: "V3_0_7_SNAPSHOT", 37: "V3_0_11", 62: "V3_1_8_SNAPSHOT", 63: "V3_1_8"}
EARLIER |= {121: "V3_4_9", 137: "V3_5_8"}


def version_name(number: int) -> str:
    """The name of a version as tools print it, such as `V5_3_3`; `V3_x` for an early one not named here."""
    if number >= HIGHER_VERSION:
        return "HIGHER_VERSION"
    if number < FIRST_REGULAR:
        return EARLIER.get(number, "V3_x")
    release, is_release = divmod(number - FIRST_REGULAR, 2)
    name = f"V{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return name if is_release else f"{name}_SNAPSHOT"
