"""Tables: selecting, grouping, joining."""

# %%
import pandas as pd

sales = pd.DataFrame(
    {
        'day': ['mon', 'mon', 'tue', 'tue', 'wed', 'wed'],
        'shop': ['north', 'south'] * 3,
        'amount': [120.0, 80.5, 99.0, None, 150.25, 60.0],
    }
)
sales

# %%
sales.info()

# %%
sales['amount'] = sales['amount'].fillna(sales['amount'].mean())
sales.describe()

# %%
limit = 90
big = sales.query('amount > @limit')
big

# %%
by_shop = sales.groupby('shop')['amount'].agg(['sum', 'mean', 'count'])
print(by_shop)

# %%
owners = pd.DataFrame({'shop': ['north', 'south', 'east'], 'owner': ['ann', 'bob', 'eve']})
merged = sales.merge(owners, how='left', on='shop')
merged.head(3)

# %%
wide = merged.pivot(index='day', columns='owner', values='amount')
wide.loc['tue'] *= 2
wide

# %%
merged['tax'] = merged.amount.map(lambda amount: round(amount * 0.19, 2))
merged.set_index(['day', 'shop'], inplace=True)
merged

# %%
same = merged
same['note'] = 'ok'
'note' in merged.columns, same is merged

# %%
wide_table = pd.DataFrame([[n * k for n in range(24)] for k in range(3)])
print(wide_table)

# %%
wide_table

# %%
sales['kind'] = pd.Categorical(['a', 'b', 'a', 'b', 'a', 'c'])
sales.kind.value_counts()

# %%
sales['no such column']

# %%
style = sales.dtypes.astype(str).to_dict()
style
