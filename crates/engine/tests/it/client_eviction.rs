//! Tests of `maxmemory-clients`: the choice of evicted clients, and the exact sum with several
//! threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::client::{ClientInfo, Place};
use engine::client_eviction::{count, evict, set_limit};
use engine::settings::Settings;
use engine::shared::Shared;
use engine::threads::Outbox;
use stdx::{Address, ConnId};

use crate::driver;

fn connect(shared: &Shared, thread: usize, input_bytes: u64) -> Arc<ClientInfo> {
    let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
    let id = shared.clients.next_id();
    let place = Place { thread, conn: ConnId::from_u64(id), fd: -1 };
    let client = Arc::new(ClientInfo::new(id, place, (address(), address()), 0));
    client.held.pending_input_bytes.store(input_bytes, Relaxed);
    shared.clients.add(Arc::clone(&client));
    client
}

/// Disconnects a client that was killed or has disconnected, as an I/O thread of the server does.
fn disconnect(shared: &Shared, client: &Arc<ClientInfo>) {
    client.state.gone.store(true, Relaxed);
    shared.threads.unregister(&shared.clients, client);
}

fn left(shared: &Shared) -> Vec<u64> {
    shared.clients.all().iter().map(|client| client.id).collect()
}

fn sum(shared: &Shared) -> u64 {
    shared.clients.memory_bytes()
}

#[test]
fn the_largest_go_until_the_rest_fits() {
    let check = |limit_of: &dyn Fn(u64) -> u64, expected: &[u64]| {
        let (shared, _) = driver::shared(2, Settings::default());
        let sizes = [1_000, 9_000, 5_000, 9_000];
        let clients: Vec<_> =
            (0..).zip(sizes).map(|(number, bytes)| connect(&shared, number % 2, bytes)).collect();
        shared.clients.protect(&clients[1]);
        let own = clients[0].memory_bytes() - 1_000;
        set_limit(&shared, 0, &Outbox::default(), limit_of(own));
        assert_eq!(left(&shared), expected);
    };
    check(&|own| 4 * own + 24_000, &[1, 2, 3, 4]);
    check(&|own| 4 * own + 23_999, &[1, 2, 3]);
    check(&|own| 3 * own + 15_000, &[1, 2, 3]);
    check(&|own| 3 * own + 14_999, &[1, 2]);
    check(&|_| 1, &[2]);
    check(&|_| 0, &[1, 2, 3, 4]);
}

#[test]
fn an_evicted_client_is_out_of_the_sum_before_its_thread_closes_it() {
    let (shared, _) = driver::shared(2, Settings::default());
    let [small, large] = [1_000, 50_000].map(|bytes| connect(&shared, 1, bytes));
    let outbox = Outbox::default();
    assert!(!count(&shared, &small, 10_000));
    assert!(count(&shared, &large, 10_000));
    evict(&shared, 0, &outbox, 10_000);
    assert_eq!((left(&shared), outbox.take().into_vec()), (vec![small.id], vec![1]));
    // The evicted client's thread may count it once more; this causes no further eviction.
    assert!(!count(&shared, &large, 10_000) && !count(&shared, &small, 10_000));
    disconnect(&shared, &large);
    assert_eq!(sum(&shared), small.memory_bytes());
    disconnect(&shared, &small);
    assert_eq!(sum(&shared), 0);
}

#[test]
fn clients_come_back_under_a_limit_after_there_was_none() {
    let (shared, _) = driver::shared(1, Settings::default());
    let client = connect(&shared, 0, 50_000);
    shared.clients.protect(&client);
    for limit in [1_000, 0, 1_000] {
        set_limit(&shared, 0, &Outbox::default(), limit);
    }
    assert_eq!(left(&shared), [client.id]);
    shared.clients.unprotect(&client);
    set_limit(&shared, 0, &Outbox::default(), 0);
    assert_eq!(left(&shared), [client.id]);
    set_limit(&shared, 0, &Outbox::default(), 1_000);
    assert_eq!(left(&shared), []);
}

/// Checks that protected clients above the memory limit are not all visited whenever one of them
/// changes. The test would take minutes otherwise.
#[test]
fn many_protected_clients_are_passed_over() {
    let (shared, _) = driver::shared(1, Settings::default());
    let outbox = Outbox::default();
    let clients: Vec<_> = (0..30_000).map(|_| connect(&shared, 0, 2_000)).collect();
    for client in &clients {
        shared.clients.protect(client);
        count(&shared, client, 1_000);
    }
    for client in &clients {
        client.held.pending_input_bytes.store(3_000, Relaxed);
        assert!(count(&shared, client, 1_000));
        evict(&shared, 0, &outbox, 1_000);
    }
    assert_eq!(shared.clients.count(), clients.len());
    shared.clients.unprotect(&clients[7]);
    evict(&shared, 0, &outbox, 1_000);
    assert!(shared.clients.get(clients[7].id).is_none());
    assert_eq!(shared.clients.count(), clients.len() - 1);
}

/// Checks that evicting one client at a time does not visit all clients each time. The test would
/// take minutes otherwise.
#[test]
fn many_clients_are_evicted_one_at_a_time() {
    let (shared, _) = driver::shared(1, Settings::default());
    let outbox = Outbox::default();
    let limit = u64::MAX >> 1;
    let clients: Vec<_> = (0..30_000).map(|_| connect(&shared, 0, 2_000)).collect();
    clients.iter().for_each(|client| assert!(!count(&shared, client, limit)));
    for left in (0..clients.len() as u64).rev() {
        evict(&shared, 0, &outbox, sum(&shared) - 1);
        assert_eq!(shared.clients.count() as u64, left);
    }
}

/// Checks that small clients remain while two threads let clients grow and evict clients. Without
/// the large clients, memory is always below the limit, so no small client has to be evicted.
#[test]
fn small_clients_are_never_evicted_for_large_ones() {
    const LIMIT: u64 = 1_000_000;
    let (shared, _) = driver::shared(2, Settings::default());
    let small: Vec<_> = (0..50).map(|_| connect(&shared, 0, 100)).collect();
    small.iter().for_each(|client| assert!(!count(&shared, client, LIMIT)));
    let work = |thread: usize| {
        let outbox = Outbox::default();
        for _ in 0..200_000 {
            let client = connect(&shared, thread, 100);
            count(&shared, &client, LIMIT);
            client.held.pending_input_bytes.store(2 * LIMIT, Relaxed);
            if count(&shared, &client, LIMIT) {
                evict(&shared, thread, &outbox, LIMIT);
            }
            disconnect(&shared, &client);
        }
    };
    std::thread::scope(|scope| {
        for thread in [0, 1] {
            scope.spawn(move || work(thread));
        }
    });
    assert_eq!(left(&shared), small.iter().map(|client| client.id).collect::<Vec<_>>());
}

/// The clients of one thread that have disconnected or were evicted in a test.
#[derive(Default)]
struct Fates {
    connected: Vec<Arc<ClientInfo>>,
    /// The clients that were evicted because of the memory limit.
    evicted: Vec<Arc<ClientInfo>>,
    /// The clients that disconnected before they were evicted.
    hung_up: Vec<Arc<ClientInfo>>,
}

/// Runs clients of one thread that grow, shrink, change their protection, connect and disconnect,
/// while the limit `maxmemory-clients` is set and removed.
fn live(shared: &Shared, thread: usize, limit_bytes: u64) -> Fates {
    let mut rng = fastrand::Rng::with_seed(thread as u64);
    let outbox = Outbox::default();
    let mut fates = Fates::default();
    for _ in 0..20_000 {
        if fates.connected.len() < 20 {
            fates.connected.push(connect(shared, thread, rng.u64(..40_000)));
        }
        let at = rng.usize(..fates.connected.len());
        let client = Arc::clone(&fates.connected[at]);
        client.held.pending_input_bytes.store(rng.u64(..40_000), Relaxed);
        match rng.u8(..10) {
            0 => shared.clients.protect(&client),
            _ => shared.clients.unprotect(&client),
        }
        if count(shared, &client, limit_bytes) {
            evict(shared, thread, &outbox, limit_bytes);
        }
        if client.state.kill_requested.load(Relaxed) || rng.u8(..20) == 0 {
            let hangs_up = shared.clients.remove(client.id);
            let fate = if hangs_up.is_some() { &mut fates.hung_up } else { &mut fates.evicted };
            fate.push(fates.connected.swap_remove(at));
        }
    }
    fates
}

/// Runs two threads with clients, and a third that sets and removes the memory limit. Checks that
/// in the end the sum is exact, and that the number of evicted clients is that of the statistics.
#[test]
fn the_sum_is_exact_whatever_threads_do_at_once() {
    const LIMIT: u64 = 300_000;
    let (shared, _) = driver::shared(3, Settings::default());
    let shared = &shared;
    let fates = std::thread::scope(|scope| {
        let workers = [0, 1].map(|thread| scope.spawn(move || live(shared, thread, LIMIT)));
        while !workers.iter().all(|worker| worker.is_finished()) {
            for limit in [LIMIT, LIMIT, 0] {
                set_limit(shared, 2, &Outbox::default(), limit);
            }
        }
        workers.map(|worker| worker.join().expect("it passes"))
    });
    let all = |of: fn(&Fates) -> &Vec<Arc<ClientInfo>>| fates.iter().flat_map(of);
    let was_killed = |client: &&Arc<ClientInfo>| client.state.kill_requested.load(Relaxed);
    assert_eq!(all(|fates| &fates.hung_up).filter(was_killed).count(), 0);
    let (killed, alive): (Vec<_>, Vec<_>) = all(|fates| &fates.connected).partition(was_killed);
    let evicted = killed.len() + all(|fates| &fates.evicted).filter(was_killed).count();
    assert_eq!(shared.threads.sum(|stats| &stats.evicted_clients), evicted as u64);
    let counted = |client: &&Arc<ClientInfo>| client.held.counted_bytes.load(Relaxed);
    assert_eq!(sum(shared), alive.iter().map(counted).sum::<u64>());
    for client in &alive {
        count(shared, client, LIMIT);
    }
    assert_eq!(sum(shared), alive.iter().map(|client| client.memory_bytes()).sum::<u64>());
    alive.iter().for_each(|client| disconnect(shared, client));
    assert_eq!((sum(shared), left(shared)), (0, vec![]));
}

#[test]
fn replicas_are_neither_counted_nor_evicted() {
    let (shared, _) = driver::shared(2, Settings::default());
    let [replica, client] = [50_000, 1_000].map(|bytes| connect(&shared, 1, bytes));
    shared.threads[1].load.fetch_add(2, Relaxed);
    set_limit(&shared, 0, &Outbox::default(), 1 << 20);
    assert_eq!(sum(&shared), replica.memory_bytes() + client.memory_bytes());
    assert!(shared.threads.mark_replica(&shared.clients, &replica) && replica.is_replica());
    assert_eq!((sum(&shared), shared.threads[1].load.load(Relaxed)), (client.memory_bytes(), 1));
    set_limit(&shared, 0, &Outbox::default(), 1);
    assert_eq!(left(&shared), [replica.id]);
    assert!(shared.threads.kill(&shared.clients, &replica, &Outbox::default()));
    assert_eq!((left(&shared), shared.threads[1].load.load(Relaxed)), (vec![], 0));
    // A client that was killed before cannot become a replica.
    assert!(!shared.threads.mark_replica(&shared.clients, &client) && !client.is_replica());
}
