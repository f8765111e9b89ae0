"""Charts of reports, in one style. Each is drawn without pyplot, so no state is shared and no window is opened."""
