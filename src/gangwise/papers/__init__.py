"""OGASched, ESDP, OPS and OPM: their slotted worlds, policies, scenarios and reproduction."""
