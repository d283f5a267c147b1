//! Maps one shared window on each host and connects the hosts.

use anyhow::{Context, Result, anyhow, bail};

use crate::exchange::memory::MemoryShape;
use crate::ffi::memory::shared_window::{SharedFile, Window, WindowLayout};
use crate::ffi::mpi::calls::Group;
use crate::host::facts;
use crate::job::world::World;

/// Creates or opens the host's window. All ranks call this together; either all fail or none.
pub fn window(shape: MemoryShape, world: &World, may_watch: bool) -> Result<Window> {
    let layout = WindowLayout {
        ranks: world.local_ranks() as usize,
        elements: shape.elements,
        wire: shape.wire,
        sums: shape.sums,
        is_shared: shape.in_place,
    };
    let joined = join(layout, world, may_watch);
    let problem = joined.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    if let Some(problem) = world.gather_text(&problem).into_iter().find(|problem| !problem.is_empty()) {
        bail!(problem);
    }
    joined
}

fn join(layout: WindowLayout, world: &World, may_watch: bool) -> Result<Window> {
    let is_first = world.local_rank() == 0;
    let mark = facts::random_id();
    let mut created = Ok(None);
    let mut identity = [0u64; 3];
    if is_first {
        created = Window::create(layout, mark, may_watch).map(Some);
        if let Ok(Some(window)) = &created {
            let SharedFile { process, descriptor } = window.shared_file();
            identity = [process.into(), descriptor as u64, mark];
        }
    }
    world.broadcast_on_host(&mut identity);
    let [process, descriptor, mark] = identity;
    let joined = match created {
        Ok(None) if process == 0 => Err(anyhow!("local rank 0 has no shared-memory window")),
        Ok(None) => {
            let file = SharedFile { process: process as u32, descriptor: descriptor as i32 };
            Window::open(layout, file, mark, world.local_rank() as usize, may_watch)
        }
        Ok(Some(window)) => Ok(window),
        Err(error) => Err(error),
    };
    joined.with_context(|| {
        format!("cannot set up shared memory on host {} (--backend mpi does not need it)", world.host())
    })
}

/// Returns the group of the ranks with this rank's shard on the other hosts; `None` without a shard. All ranks call
/// this together.
pub fn group(world: &World, has_shard: bool) -> Option<Group> {
    let (first, second) = (world.with_same_local_rank(has_shard), world.with_same_local_rank(has_shard));
    Some(Group { first: first?, second: second? })
}
