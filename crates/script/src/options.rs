//! The options of a Lua state.

/// The versions of the server that scripts can read, and the memory limit of scripts.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// `redis.REDIS_VERSION`: the version of Redis that we are compatible with.
    pub redis_version: String,
    /// `redis.REDIS_VERSION_NUM`: the version of Redis as a number, 0xMMmmpp.
    pub redis_version_number: u32,
    /// `server.SERVER_NAME`: the name of the server.
    pub server_name: String,
    /// `server.SERVER_VERSION`: the version of Saker.
    pub server_version: String,
    /// The memory of one thread's Lua state at which scripts fail with `not enough memory`, in
    /// bytes. `None` is no limit.
    pub memory_limit_bytes: Option<usize>,
}
