"""Diagnoses why an implementation fails: from what was observed to causes, with the equations of wrong steps.

A diagnosis goes, in this order, through

- `observations`: what is kept of a run, and the diagnoses of it; `selection`: the cases that say most;
- `causes`, `advice`: causes that are seen without numbers, such as what was not refused, or NaN;
- `evidence`: a case beside what is right and what a hypothesis predicts, in σ (`in_sigma`), for each choice that nobody
  specifies (`match`), and with what noisy deviations predict beside a size (`noisy_predictions`);
- `diagnose`: deviations of the catalogue and measured epsilons (`epsilon`) are tried, alone and in pairs
  (`catalogue_search`), and ranked by how they match (`match`);
- `identify`: the equation of a wrong step that no catalogue has; `experiments` and `dependence` ask a live
  implementation again;
- `explanation`: an explanation held to cases that it was not found in; `backward`: gradients;
- `lost`: what a fault of ours leaves of a diagnosis, whichever of these it happens in.
"""
