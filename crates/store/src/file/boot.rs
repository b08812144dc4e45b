//! Which boot of which machine this is: deadlines on the boot-time clock mean nothing in another.

/// The boot id, and the time namespace, whose processes see the boot-time clock with an offset of their own.
pub(super) fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}
