//! CLUSTER and related commands on a server that is not a cluster node. As in Redis with
//! `cluster-enabled no`, each request is checked and then refused.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&ASKING, &CLUSTER, &READONLY, &READWRITE];

/// The command flags of CLUSTER subcommands that only return information.
const READ: Flags = Flags::STALE;
/// The command flags of administrative CLUSTER subcommands.
const ADMIN: Flags = Flags::ADMIN.union(Flags::STALE);
/// The command flags of CLUSTER subcommands that change the cluster.
const CHANGES: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);

/// Handles all commands of this file: refuses the request with the error that cluster support is
/// disabled.
fn disabled(_ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Line("ERR This instance has cluster support disabled"))
}

static ASKING: Command<Runner> = Command {
    name: "ASKING",
    summary: "Permits the next request in a hash slot that is being imported. Refused outside a cluster.",
    history: History::since("3.0.0"),
    group: Group::Cluster,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::FAST,
    acl: Acl::CONNECTION,
    run: Runner::Server(disabled),
    ..Command::DEFAULT
};

static READONLY: Command<Runner> = Command {
    name: "READONLY",
    summary: "Permits reads from a replica of a cluster on this connection. Refused outside a cluster.",
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    ..ASKING
};

static READWRITE: Command<Runner> =
    Command { name: "READWRITE", summary: "Ends READONLY. Refused outside a cluster.", ..READONLY };

static CLUSTER: Command<Runner> = Command {
    name: "CLUSTER",
    summary: "A container for commands of cluster nodes. All are refused, because the server is not a node \
         of a cluster.",
    history: History::since("3.0.0"),
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &CLUSTER_ADDSLOTS,
        &CLUSTER_ADDSLOTSRANGE,
        &CLUSTER_BUMPEPOCH,
        &CLUSTER_COUNT_FAILURE_REPORTS,
        &CLUSTER_COUNTKEYSINSLOT,
        &CLUSTER_DELSLOTS,
        &CLUSTER_DELSLOTSRANGE,
        &CLUSTER_FAILOVER,
        &CLUSTER_FLUSHSLOTS,
        &CLUSTER_FORGET,
        &CLUSTER_GETKEYSINSLOT,
        &CLUSTER_HELP,
        &CLUSTER_INFO,
        &CLUSTER_KEYSLOT,
        &CLUSTER_LINKS,
        &CLUSTER_MEET,
        &CLUSTER_MYID,
        &CLUSTER_MYSHARDID,
        &CLUSTER_NODES,
        &CLUSTER_REPLICAS,
        &CLUSTER_REPLICATE,
        &CLUSTER_RESET,
        &CLUSTER_SAVECONFIG,
        &CLUSTER_SET_CONFIG_EPOCH,
        &CLUSTER_SETSLOT,
        &CLUSTER_SHARDS,
        &CLUSTER_SLAVES,
        &CLUSTER_SLOTS,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

/// Creates the command table's record of a CLUSTER subcommand. Administrative subcommands are also
/// in the ACL category `dangerous`.
const fn subcommand(
    name: &'static str,
    summary: &'static str,
    arity: Arity,
    flags: Flags,
    args: &'static [Arg],
) -> Command<Runner> {
    Command {
        name,
        summary,
        arity,
        flags,
        acl: if flags.contains(Flags::ADMIN) { Acl::ADMIN.union(Acl::DANGEROUS) } else { Acl::empty() },
        args,
        complexity: "O(1)",
        recorded_forms: &[],
        subcommands: &[],
        run: Runner::Server(disabled),
        ..CLUSTER
    }
}

/// The command tips of CLUSTER subcommands whose replies differ from call to call.
const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];

static CLUSTER_ADDSLOTS: Command<Runner> = subcommand(
    "ADDSLOTS",
    "Assigns hash slots to the node.",
    Arity::AtLeast(3),
    CHANGES,
    &[Arg::integer("slot").multiple()],
);
static CLUSTER_ADDSLOTSRANGE: Command<Runner> = Command {
    history: History::since("7.0.0"),
    ..subcommand(
        "ADDSLOTSRANGE",
        "Assigns ranges of hash slots to the node.",
        Arity::AtLeast(4),
        CHANGES,
        &[Arg::block("range", &[Arg::integer("start-slot"), Arg::integer("end-slot")]).multiple()],
    )
};
static CLUSTER_BUMPEPOCH: Command<Runner> = Command {
    tips: NONDETERMINISTIC,
    ..subcommand("BUMPEPOCH", "Advances the configuration epoch.", Arity::Exactly(2), CHANGES, &[])
};
static CLUSTER_COUNT_FAILURE_REPORTS: Command<Runner> = Command {
    tips: NONDETERMINISTIC,
    ..subcommand(
        "COUNT-FAILURE-REPORTS",
        "Returns the number of nodes that report the failure of a node.",
        Arity::Exactly(3),
        ADMIN,
        &[Arg::string("node-id")],
    )
};
static CLUSTER_COUNTKEYSINSLOT: Command<Runner> = subcommand(
    "COUNTKEYSINSLOT",
    "Returns the number of keys in a hash slot.",
    Arity::Exactly(3),
    READ,
    &[Arg::integer("slot")],
);
static CLUSTER_DELSLOTS: Command<Runner> = subcommand(
    "DELSLOTS",
    "Removes hash slots from the node.",
    Arity::AtLeast(3),
    CHANGES,
    &[Arg::integer("slot").multiple()],
);
static CLUSTER_DELSLOTSRANGE: Command<Runner> = Command {
    history: History::since("7.0.0"),
    ..subcommand(
        "DELSLOTSRANGE",
        "Removes ranges of hash slots from the node.",
        Arity::AtLeast(4),
        CHANGES,
        &[Arg::block("range", &[Arg::integer("start-slot"), Arg::integer("end-slot")]).multiple()],
    )
};
static CLUSTER_FAILOVER: Command<Runner> = subcommand(
    "FAILOVER",
    "Starts a failover: the replica replaces its primary.",
    Arity::AtLeast(2),
    CHANGES,
    &[Arg::one_of("options", &[Arg::word("force", "FORCE"), Arg::word("takeover", "TAKEOVER")]).optional()],
);
static CLUSTER_FLUSHSLOTS: Command<Runner> =
    subcommand("FLUSHSLOTS", "Removes all hash slots from the node.", Arity::Exactly(2), CHANGES, &[]);
static CLUSTER_FORGET: Command<Runner> = subcommand(
    "FORGET",
    "Removes a node from the list of known nodes.",
    Arity::Exactly(3),
    CHANGES,
    &[Arg::string("node-id")],
);
static CLUSTER_GETKEYSINSLOT: Command<Runner> = Command {
    tips: NONDETERMINISTIC,
    ..subcommand(
        "GETKEYSINSLOT",
        "Returns keys of a hash slot.",
        Arity::Exactly(4),
        READ,
        &[Arg::integer("slot"), Arg::integer("count")],
    )
};
static CLUSTER_HELP: Command<Runner> = Command {
    history: History::since("5.0.0"),
    ..subcommand("HELP", "Lists the subcommands.", Arity::Exactly(2), READ.union(Flags::LOADING), &[])
};
static CLUSTER_INFO: Command<Runner> = Command {
    tips: NONDETERMINISTIC,
    ..subcommand("INFO", "Describes the state of the cluster.", Arity::Exactly(2), READ, &[])
};
static CLUSTER_KEYSLOT: Command<Runner> =
    subcommand("KEYSLOT", "Returns the hash slot of a key.", Arity::Exactly(3), READ, &[Arg::string("key")]);
static CLUSTER_LINKS: Command<Runner> = Command {
    history: History::since("7.0.0"),
    tips: NONDETERMINISTIC,
    ..subcommand("LINKS", "Returns the connections between nodes.", Arity::Exactly(2), READ, &[])
};
static CLUSTER_MEET: Command<Runner> = Command {
    history: History::since("3.0.0").changed(&[("4.0.0", "takes the port of the cluster bus")]),
    ..subcommand(
        "MEET",
        "Connects the node to another node of the cluster.",
        Arity::AtLeast(4),
        CHANGES,
        &[
            Arg::string("ip"),
            Arg::integer("port"),
            Arg::integer("cluster-bus-port").since("4.0.0").optional(),
        ],
    )
};
static CLUSTER_MYID: Command<Runner> =
    subcommand("MYID", "Returns the ID of the node.", Arity::Exactly(2), READ, &[]);
static CLUSTER_MYSHARDID: Command<Runner> = Command {
    history: History::since("7.2.0"),
    tips: NONDETERMINISTIC,
    ..subcommand("MYSHARDID", "Returns the ID of the node's shard.", Arity::Exactly(2), READ, &[])
};
static CLUSTER_NODES: Command<Runner> = Command {
    tips: NONDETERMINISTIC,
    ..subcommand("NODES", "Returns the nodes of the cluster.", Arity::Exactly(2), READ, &[])
};
static CLUSTER_REPLICAS: Command<Runner> = Command {
    history: History::since("5.0.0"),
    tips: NONDETERMINISTIC,
    ..subcommand(
        "REPLICAS",
        "Returns the replicas of a primary.",
        Arity::Exactly(3),
        ADMIN,
        &[Arg::string("node-id")],
    )
};
static CLUSTER_REPLICATE: Command<Runner> = subcommand(
    "REPLICATE",
    "Makes the node a replica of a primary.",
    Arity::Exactly(3),
    CHANGES,
    &[Arg::string("node-id")],
);
static CLUSTER_RESET: Command<Runner> = subcommand(
    "RESET",
    "Removes the node from the cluster.",
    Arity::AtLeast(2),
    ADMIN.union(Flags::NOSCRIPT),
    &[Arg::one_of("reset-type", &[Arg::word("hard", "HARD"), Arg::word("soft", "SOFT")]).optional()],
);
static CLUSTER_SAVECONFIG: Command<Runner> =
    subcommand("SAVECONFIG", "Writes the cluster's configuration to disk.", Arity::Exactly(2), CHANGES, &[]);
static CLUSTER_SET_CONFIG_EPOCH: Command<Runner> = subcommand(
    "SET-CONFIG-EPOCH",
    "Sets the configuration epoch of a new node.",
    Arity::Exactly(3),
    CHANGES,
    &[Arg::integer("config-epoch")],
);
static CLUSTER_SETSLOT: Command<Runner> = subcommand(
    "SETSLOT",
    "Assigns a hash slot to a node, or sets the state of its migration.",
    Arity::AtLeast(4),
    CHANGES,
    &[
        Arg::integer("slot"),
        Arg::one_of(
            "subcommand",
            &[
                Arg::string("importing").token("IMPORTING").shown_as("node-id"),
                Arg::string("migrating").token("MIGRATING").shown_as("node-id"),
                Arg::string("node").token("NODE").shown_as("node-id"),
                Arg::word("stable", "STABLE"),
            ],
        ),
    ],
);
static CLUSTER_SHARDS: Command<Runner> = Command {
    history: History::since("7.0.0"),
    tips: NONDETERMINISTIC,
    ..subcommand(
        "SHARDS",
        "Returns the shards of the cluster with their hash slots and nodes.",
        Arity::Exactly(2),
        READ.union(Flags::LOADING),
        &[],
    )
};
static CLUSTER_SLAVES: Command<Runner> = Command {
    history: History::since("3.0.0").deprecated("5.0.0", "`CLUSTER REPLICAS`"),
    tips: NONDETERMINISTIC,
    ..subcommand(
        "SLAVES",
        "Returns the replicas of a primary.",
        Arity::Exactly(3),
        ADMIN,
        &[Arg::string("node-id")],
    )
};
static CLUSTER_SLOTS: Command<Runner> = Command {
    history: History::since("3.0.0")
        .changed(&[("4.0.0", "returns the IDs of nodes"), ("7.0.0", "returns additional network metadata")])
        .deprecated("7.0.0", "`CLUSTER SHARDS`"),
    tips: NONDETERMINISTIC,
    ..subcommand(
        "SLOTS",
        "Returns the hash slots with their nodes.",
        Arity::Exactly(2),
        READ.union(Flags::LOADING),
        &[],
    )
};
