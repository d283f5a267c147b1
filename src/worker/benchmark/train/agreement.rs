//! Tensors that are to be the same on every rank.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::job::world::World;

/// Gives every rank rank 0's values of these tensors, of fp32 or of counts that it holds exactly; all call it together.
pub fn take_those_of_rank_0<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, world: &World) -> Result<()> {
    if world.ranks() == 1 {
        return Ok(());
    }
    for tensor in tensors {
        let mut values = Vec::<f32>::try_from(&tensor.f_to_kind(Kind::Float)?.f_flatten(0, -1)?)?;
        world.broadcast(&mut values);
        tensor.shallow_clone().f_copy_(&Tensor::from_slice(&values).f_view_as(tensor)?)?;
    }
    Ok(())
}
