"""Plans at the settings of the papers, for those who have the data, the weights and a GPU."""
