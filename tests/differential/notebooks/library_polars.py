"""Frames by expressions (polars)."""

# %%
import polars as pl

trips = pl.DataFrame({'city': ['oslo', 'rome', 'oslo', 'bern'], 'km': [12.5, 3.0, 8.25, None], 'day': [1, 1, 2, 2]})
trips

# %%
trips = trips.with_columns(pl.col('km').fill_null(0).alias('km'), (pl.col('day') + 1).alias('next'))
print(trips)

# %%
per_city = trips.group_by('city').agg(pl.col('km').sum(), pl.len()).sort('city')
per_city

# %%
lazy = trips.lazy().filter(pl.col('km') > 5).select('city', pl.col('km').rank().alias('rank'))
lazy.collect()

# %%
joined = per_city.join(pl.DataFrame({'city': ['oslo', 'rome'], 'country': ['no', 'it']}), on='city', how='left')
joined.to_dicts()

# %%
trips.write_csv('trips.csv')
pl.read_csv('trips.csv').shape

# %%
same = trips
same.insert_column(0, pl.Series('n', [0, 1, 2, 3]))
same is trips, trips.columns

# %%
trips['no such']
